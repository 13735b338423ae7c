// A reward server: node dist/main.js [HOST:PORT], or the address in REWARD_ADDRESS.
// Port 0 takes a free one; the first line on stdout says which.

import { fileURLToPath } from 'node:url';
import { Server, ServerCredentials, loadPackageDefinition } from '@grpc/grpc-js';
import { loadSync } from '@grpc/proto-loader';
import { ReflectionService } from '@grpc/reflection';
import { HealthImplementation } from 'grpc-health-check';
import { answerTag } from './answer_tag.js';
import type { ProtoGrpcType } from './generated/reward_service.js';
import { RewardService } from './service.js';
import { typescriptParses } from './typescript_parses.js';

const SERVICE_NAME = 'plaudit.reward.v1.RewardService';
const MAX_FRAME_BYTES = 16 * 1024 * 1024;
/** How long accepted work is still served after SIGTERM. */
const GRACE_MS = 10_000;

const address = process.argv[2] ?? process.env['REWARD_ADDRESS'] ?? '127.0.0.1:50061';

// The same options as in `npm run generate`. 64-bit integers as text: a number of JavaScript has 53 bits.
const definition = loadSync(fileURLToPath(new URL('reward_service.proto', import.meta.url)), {
  longs: String,
  enums: String,
  defaults: true,
  oneofs: true,
});
const { plaudit } = loadPackageDefinition(definition) as unknown as ProtoGrpcType;

// grpc-js does not count pings, so that a trainer's keepalive needs no option here.
const server = new Server({ 'grpc.max_receive_message_length': MAX_FRAME_BYTES });
const service = new RewardService([answerTag, typescriptParses], MAX_FRAME_BYTES);
server.addService(plaudit.reward.v1.RewardService.service, service.handlers());
const health = new HealthImplementation({ '': 'SERVING', [SERVICE_NAME]: 'SERVING' });
health.addToServer(server);
new ReflectionService(definition).addToServer(server);

server.bindAsync(address, ServerCredentials.createInsecure(), (error, port) => {
  if (error) {
    console.error(`cannot listen on ${address}: ${error.message}`);
    process.exit(1);
  }
  console.log(`listening on ${address.replace(/:\d+$/, `:${port}`)}`);
});

let stopping = false;
function stop(): void {
  if (stopping) return;
  stopping = true;
  health.setStatus('', 'NOT_SERVING');
  health.setStatus(SERVICE_NAME, 'NOT_SERVING');
  service.drain(GRACE_MS);
  setTimeout(() => server.forceShutdown(), GRACE_MS).unref();
  server.tryShutdown(() => process.exit(0));
}
process.on('SIGTERM', stop);
process.on('SIGINT', stop);
