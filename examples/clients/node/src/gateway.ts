// A typed client of the gateway, which sends its token with every call.

import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { type CallOptions, Metadata, credentials, loadPackageDefinition } from '@grpc/grpc-js';
import { loadSync } from '@grpc/proto-loader';
import type { TrainingJobServiceClient } from './generated/plaudit/gateway/v1/TrainingJobService.js';
import type { ProtoGrpcType } from './generated/training_job_service.js';

export interface Access {
  /** HOST:PORT. */
  address: string;
  /** Sent as a bearer token where it is not empty. */
  token: string;
  tls: boolean;
  /** Certificates (PEM) of the CAs that sign the gateway's; the machine's own where there is none. */
  caFile: string | undefined;
}

export interface Gateway {
  jobs: TrainingJobServiceClient;
  metadata: Metadata;
}

// The same options as in `npm run generate`.
const definition = loadSync('plaudit/gateway/v1/training_job_service.proto', {
  includeDirs: [fileURLToPath(new URL('protos', import.meta.url))],
  keepCase: true,
  longs: Number,
  enums: String,
  defaults: true,
  oneofs: true,
});
const { plaudit } = loadPackageDefinition(definition) as unknown as ProtoGrpcType;

/** A call that answers once has this long, in all its tries. */
export function deadline(): CallOptions {
  return { deadline: Date.now() + 30_000 };
}

export function connect(access: Access): Gateway {
  if (access.token && !access.tls && !/^(localhost|127\.\d+\.\d+\.\d+|\[::1\]):\d+$/.test(access.address)) {
    throw new Error(`the token would travel to ${access.address} in plain text; use --tls`);
  }
  const metadata = new Metadata();
  if (access.token) metadata.set('authorization', `Bearer ${access.token}`);
  const channel = access.tls
    ? credentials.createSsl(access.caFile === undefined ? null : readFileSync(access.caFile))
    : credentials.createInsecure();
  const jobs = new plaudit.gateway.v1.TrainingJobService(access.address, channel, {
    // A connection that died without a word is noticed within 30 s.
    'grpc.keepalive_time_ms': 20_000,
    'grpc.keepalive_timeout_ms': 10_000,
  });
  return { jobs, metadata };
}
