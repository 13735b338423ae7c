import { setImmediate as nextTurn } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { status, type ServerDuplexStream } from '@grpc/grpc-js';
import type { Batch__Output } from './generated/plaudit/reward/v1/Batch.js';
import type { Duration } from './generated/google/protobuf/Duration.js';
import type { Failure } from './generated/plaudit/reward/v1/Failure.js';
import type { GetServerInfoResponse } from './generated/plaudit/reward/v1/GetServerInfoResponse.js';
import type { Result } from './generated/plaudit/reward/v1/Result.js';
import type { RewardServiceHandlers } from './generated/plaudit/reward/v1/RewardService.js';
import type { ScoreRequest__Output } from './generated/plaudit/reward/v1/ScoreRequest.js';
import type { ScoreResponse } from './generated/plaudit/reward/v1/ScoreResponse.js';
import type { SessionOpen__Output } from './generated/plaudit/reward/v1/SessionOpen.js';
import { ConfigError, failed, type Config, type Outcome, type Reward, type Scorer } from './reward.js';

const PROTOCOL_VERSION = 1;
/** Most completions in flight in a session. */
const WINDOW = 1024;
/** After this long the results so far are sent, and the event loop gets its turn. */
const TURN_MS = 10;
const BUNDLE_RESULTS = 256;
const DEFAULT_TIMEOUT_MS = 600_000;
const LONGEST_TIMER_MS = 2 ** 31 - 1;
const STOPPED = {
  CODE_TIMEOUT: "the batch's timeout ran out",
  CODE_CANCELLED: 'the client cancelled the batch',
} as const;

type Call = ServerDuplexStream<ScoreRequest__Output, ScoreResponse>;

/** The server's side of plaudit.reward.v1. */
export class RewardService {
  readonly #rewards: Map<string, Reward>;
  readonly #info: GetServerInfoResponse;
  readonly #sessions = new Set<Session>();

  constructor(rewards: Reward[], maxFrameBytes: number) {
    this.#rewards = new Map(rewards.map((reward) => [reward.info.name, reward]));
    this.#info = {
      serverName: 'node-rewards',
      serverVersion: '1.0.0',
      minProtocolVersion: PROTOCOL_VERSION,
      maxProtocolVersion: PROTOCOL_VERSION,
      rewards: rewards.map((reward) => reward.info),
      limits: { maxFrameBytes },
      capabilities: { cancellation: true },
    };
  }

  /** What grpc-js serves. What is optional and left out, it answers with UNIMPLEMENTED. */
  handlers(): Pick<RewardServiceHandlers, 'GetServerInfo' | 'Score'> {
    return {
      GetServerInfo: (_, callback) => callback(null, this.#info),
      Score: (call: Call) => {
        const session = new Session(call, this.#rewards, () => this.#sessions.delete(session));
        this.#sessions.add(session);
      },
    };
  }

  /** Tells every client to finish and to come back later. */
  drain(graceMs: number): void {
    for (const session of this.#sessions) session.drain(graceMs);
  }
}

/** A batch that is being scored, and why what is open of it is not scored any more. */
interface Work {
  readonly batch: Batch__Output;
  stopped?: keyof typeof STOPPED;
}

/** What one stream has opened. */
class Session {
  readonly #call: Call;
  readonly #rewards: Map<string, Reward>;
  readonly #onEnd: () => void;
  readonly #scorers = new Map<string, Scorer>();
  /** Batches that are being scored, by id. */
  readonly #works = new Map<string, Work>();
  #inFlight = 0;
  #state: 'new' | 'open' | 'draining' | 'over' = 'new';
  #halfClosed = false;

  constructor(call: Call, rewards: Map<string, Reward>, onEnd: () => void) {
    this.#call = call;
    this.#rewards = rewards;
    this.#onEnd = onEnd;
    call.on('data', (frame: ScoreRequest__Output) => this.#receive(frame));
    call.on('drain', () => call.resume());
    call.on('end', () => {
      this.#halfClosed = true;
      this.#endIfFinished();
    });
    call.on('cancelled', () => {
      this.#end();
      for (const work of this.#works.values()) work.stopped = 'CODE_CANCELLED';
    });
    call.on('error', () => {}); // 'cancelled' has told it
  }

  drain(graceMs: number): void {
    if (this.#state === 'open') this.#send({ draining: { grace: durationOf(graceMs) } });
    if (this.#state !== 'over') this.#state = 'draining';
    this.#endIfFinished();
  }

  #receive(request: ScoreRequest__Output): void {
    if (this.#state === 'over') return;
    switch (request.frame) {
      case 'open':
        return this.#open(request.open!);
      case 'batch':
        return this.#accept(request.batch!);
      case 'cancel': {
        const work = this.#works.get(request.cancel!.batchId);
        if (work) work.stopped ??= 'CODE_CANCELLED';
      }
      // A frame of another kind is of a later revision, and is ignored.
    }
  }

  #open(open: SessionOpen__Output): void {
    if (this.#state !== 'new') return this.#fail(status.INVALID_ARGUMENT, 'open: came twice');
    if (open.protocolVersion !== PROTOCOL_VERSION) {
      const wrong = `protocol_version ${open.protocolVersion} is not spoken here`;
      return this.#fail(status.FAILED_PRECONDITION, `${wrong}; this server speaks ${PROTOCOL_VERSION}`);
    }
    const wrong: string[] = [];
    if (!open.sessionId) wrong.push('session_id: is empty');
    if (open.rewards.length === 0) wrong.push('rewards: is empty; select at least one');
    open.rewards.forEach(({ key, name, configJson }, index) => {
      const field = `rewards[${index}]`;
      if (!key || this.#scorers.has(key)) wrong.push(`${field}.key: ${JSON.stringify(key)} is empty or taken`);
      const reward = this.#rewards.get(name);
      if (!reward) {
        wrong.push(`${field}.name: there is no reward ${JSON.stringify(name)}`);
        return;
      }
      try {
        this.#scorers.set(key, reward.configure(parsedConfig(configJson)));
      } catch (error) {
        if (!(error instanceof ConfigError)) throw error;
        for (const { field: path, message } of error.wrong) {
          wrong.push(`${field}.config${path && `.${path}`}: ${message}`);
        }
      }
    });
    if (wrong.length > 0) return this.#fail(status.INVALID_ARGUMENT, wrong.join('; '));
    this.#state = 'open';
    this.#send({ opened: { maxInFlightCompletions: WINDOW } });
  }

  #accept(batch: Batch__Output): void {
    if (this.#state === 'new') return this.#fail(status.INVALID_ARGUMENT, 'open: is missing; it is the first frame');
    const known = this.#works.get(batch.batchId);
    if (known && isSameWork(known.batch, batch)) return; // its results are on their way
    const keys = batch.rewardKeys.length > 0 ? batch.rewardKeys : [...this.#scorers.keys()];
    const count = batch.groups.reduce((sum, group) => sum + group.completions.length, 0);
    const failure = this.#refusal(batch, keys, count);
    if (failure) return this.#send({ rejected: { batchId: batch.batchId, failure } });
    this.#inFlight += count;
    void this.#score(batch, keys);
  }

  #refusal(batch: Batch__Output, keys: string[], count: number): Failure | undefined {
    const retryDelay = durationOf(1000);
    if (this.#state === 'draining') {
      return { code: 'CODE_UNAVAILABLE', message: 'the server is going away; send the batch again later', retryDelay };
    }
    const unknown = keys.find((key) => !this.#scorers.has(key));
    if (unknown !== undefined) {
      return { code: 'CODE_INVALID', message: `reward_keys: the session has no ${JSON.stringify(unknown)}` };
    }
    if (count === 0) return { code: 'CODE_INVALID', message: 'groups: there is no completion' };
    if (this.#works.has(batch.batchId)) {
      return { code: 'CODE_CONFLICT', message: `batch ${batch.batchId} is being scored, with other content` };
    }
    if (this.#inFlight > 0 && this.#inFlight + count > WINDOW) {
      const message = `${count} completions on top of ${this.#inFlight} exceed the window of ${WINDOW}`;
      return { code: 'CODE_LIMIT_EXCEEDED', message, retryDelay };
    }
    return undefined;
  }

  /** Sends a result for each completion and key, then done. */
  async #score(batch: Batch__Output, keys: string[]): Promise<void> {
    const { batchId } = batch;
    const work: Work = { batch };
    this.#works.set(batchId, work);
    const timer = setTimeout(() => (work.stopped ??= 'CODE_TIMEOUT'), timeoutOf(batch));
    const done = { batchId, scoredCount: 0, notApplicableCount: 0, failedCount: 0 };
    let results: Result[] = [];
    let finished = 0;
    let turnBegan = performance.now();
    const flush = (): void => {
      this.#inFlight -= finished; // before the client can know it
      if (results.length > 0) this.#send({ results: { results } });
      results = [];
      finished = 0;
    };
    for (const group of batch.groups) {
      for (const completion of group.completions) {
        for (const key of keys) {
          const began = performance.now();
          const outcome = work.stopped
            ? failed(work.stopped, STOPPED[work.stopped])
            : await guarded(() => this.#scorers.get(key)!(group, completion));
          const scoringDuration = durationOf(performance.now() - began);
          results.push({ batchId, completionId: completion.completionId, rewardKey: key, ...outcome, scoringDuration });
          if (outcome.score) done.scoredCount += 1;
          else if (outcome.notApplicable) done.notApplicableCount += 1;
          else done.failedCount += 1;
        }
        finished += 1;
        if (results.length >= BUNDLE_RESULTS) flush();
        if (performance.now() - turnBegan >= TURN_MS) {
          flush();
          await nextTurn();
          turnBegan = performance.now();
        }
      }
    }
    flush();
    clearTimeout(timer);
    this.#works.delete(batchId);
    this.#send({ done });
    this.#endIfFinished();
  }

  #send(frame: ScoreResponse): void {
    // A client that does not read is not read either, until 'drain'.
    if (this.#state !== 'over' && !this.#call.write(frame)) this.#call.pause();
  }

  #endIfFinished(): void {
    if (this.#works.size > 0 || this.#state === 'over') return;
    if (this.#halfClosed) {
      this.#end();
      this.#call.end();
    } else if (this.#state === 'draining') {
      this.#fail(status.UNAVAILABLE, 'the server is going away; come again later');
    }
  }

  #end(): void {
    this.#state = 'over';
    this.#onEnd();
  }

  #fail(code: status, details: string): void {
    this.#end();
    this.#call.emit('error', { code, details });
  }
}

/** Compares what may not change under the id of a batch. */
function isSameWork(a: Batch__Output, b: Batch__Output): boolean {
  return isDeepStrictEqual([a.groups, a.rewardKeys], [b.groups, b.rewardKeys]);
}

/** An error of a reward is a failure of one completion. */
async function guarded(score: () => Outcome | Promise<Outcome>): Promise<Outcome> {
  try {
    return await score();
  } catch (error) {
    return failed('CODE_INTERNAL', `the reward threw: ${String(error).slice(0, 500).toWellFormed()}`);
  }
}

function parsedConfig(json: string): Config {
  let config: unknown;
  try {
    config = JSON.parse(json || '{}');
  } catch (error) {
    throw new ConfigError([{ field: '', message: `is no JSON: ${(error as Error).message}` }]);
  }
  if (typeof config !== 'object' || config === null || Array.isArray(config)) {
    throw new ConfigError([{ field: '', message: 'is no JSON object' }]);
  }
  return config as Config;
}

function timeoutOf({ timeout }: Batch__Output): number {
  const ms = timeout ? Number(timeout.seconds) * 1000 + timeout.nanos / 1e6 : DEFAULT_TIMEOUT_MS;
  return Math.min(ms, LONGEST_TIMER_MS);
}

function durationOf(ms: number): Duration {
  const seconds = Math.floor(ms / 1000);
  return { seconds, nanos: Math.floor((ms - seconds * 1000) * 1e6) };
}
