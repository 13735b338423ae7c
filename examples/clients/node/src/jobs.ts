// Creates a job, and watches it to its end whatever happens to the connection.

import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { type ServiceError, status } from '@grpc/grpc-js';
import { type Gateway, deadline } from './gateway.js';
import type { Duration } from './generated/google/protobuf/Duration.js';
import type { CreateTrainingJobRequest } from './generated/plaudit/gateway/v1/CreateTrainingJobRequest.js';
import type { RewardBinding } from './generated/plaudit/gateway/v1/RewardBinding.js';
import type { TrainingJobEvent__Output } from './generated/plaudit/gateway/v1/TrainingJobEvent.js';
import type { TrainingJob__Output } from './generated/plaudit/gateway/v1/TrainingJob.js';

const FIRST_PAUSE_MS = 200;
const LONGEST_PAUSE_MS = 5_000;
/** How long the gateway may be away before it is given up. */
const PATIENCE_MS = 60_000;

/** A job as JSON: the fields of `POST /v1/training_jobs`. */
export interface JobFile {
  base_model: string;
  dataset_id: string;
  output_name: string;
  method?: string;
  hyperparameters?: object;
  rewards?: RewardFile[];
  resume_from?: string;
  preflight?: string;
}

export interface RewardFile {
  server: string;
  reward: string;
  name?: string;
  weight?: number;
  config?: object;
  timeout_seconds?: number;
  max_attempts?: number;
  retry_seconds?: number;
}

/** A reward as it travels: its configuration as JSON text, so that 50 stays 50, and lengths of time as messages. */
function binding({ config = {}, timeout_seconds, retry_seconds, ...reward }: RewardFile): RewardBinding {
  return {
    ...reward,
    config_json: JSON.stringify(config),
    ...(timeout_seconds === undefined ? {} : { timeout: duration(timeout_seconds) }),
    ...(retry_seconds === undefined ? {} : { retry_time: duration(retry_seconds) }),
  };
}

function duration(length: number): Duration {
  const seconds = Math.floor(length);
  return { seconds, nanos: Math.round((length - seconds) * 1e9) };
}

/** Queues a job. A call whose answer is lost is made again under the same request id: it never makes two. */
export async function create(gateway: Gateway, file: JobFile): Promise<TrainingJob__Output> {
  const { hyperparameters = {}, rewards = [], ...fields } = file;
  const request: CreateTrainingJobRequest = {
    spec: {
      ...fields,
      hyperparameters_json: JSON.stringify(hyperparameters),
      rewards: rewards.map(binding),
    },
    request_id: randomUUID(),
  };
  const patience = new Patience();
  for (;;) {
    try {
      return await new Promise((resolve, reject) => {
        gateway.jobs.CreateTrainingJob(request, gateway.metadata, deadline(), (error, job) =>
          job ? resolve(job) : reject(error),
        );
      });
    } catch (error) {
      await patience.afterBreak(error);
    }
  }
}

/**
 * The events of a job, each once and in order, to its end. A stream that breaks is opened again after the last
 * event that was dealt with; `after` goes on where another process left off.
 */
export async function* watch(
  gateway: Gateway,
  id: string,
  after = '',
): AsyncGenerator<TrainingJobEvent__Output, void> {
  let cursor = after;
  let patience = new Patience();
  for (;;) {
    const call = gateway.jobs.WatchTrainingJob({ id, after_cursor: cursor }, gateway.metadata);
    try {
      for await (const event of call as AsyncIterable<TrainingJobEvent__Output>) {
        yield event;
        cursor = event.cursor;
        patience = new Patience();
      }
      return;
    } catch (error) {
      await patience.afterBreak(error);
      console.error(`the stream broke (${(error as Error).message}); going on after ${cursor || 'the start'}`);
    } finally {
      call.cancel();
    }
  }
}

/** Growing pauses, until the gateway has been away for too long. */
class Patience {
  private pause = FIRST_PAUSE_MS;
  private brokenSince: number | undefined;

  /** Waits after an error that is a lost connection; throws any other, and that one after a while. */
  async afterBreak(error: unknown): Promise<void> {
    this.brokenSince ??= Date.now();
    const lost = (error as ServiceError).code === status.UNAVAILABLE;
    if (!lost || Date.now() - this.brokenSince > PATIENCE_MS) throw error;
    await sleep(this.pause);
    this.pause = Math.min(2 * this.pause, LONGEST_PAUSE_MS);
  }
}
