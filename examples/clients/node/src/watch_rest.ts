// Prints the metrics of a job over REST, as server-sent events: node dist/watch_rest.js [OPTIONS] --job JOB

import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';

const PATIENCE_MS = 60_000;
const PAUSE_MS = 500;
/** A comment comes every 15 s where nothing else does; a stream that is quieter is dead. */
const QUIET_MS = 45_000;

interface ServerSentEvent {
  id: string;
  kind: string;
  data: string;
}

/** The events of one connection, to its end. */
async function* read(body: ReadableStream<Uint8Array>, heard: () => void): AsyncGenerator<ServerSentEvent, void> {
  const decoder = new TextDecoder();
  let event: ServerSentEvent = { id: '', kind: '', data: '' };
  let rest = '';
  for await (const chunk of body as unknown as AsyncIterable<Uint8Array>) {
    heard();
    const lines = (rest + decoder.decode(chunk, { stream: true })).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines.map((text) => text.replace(/\r$/, ''))) {
      const [, field, value = ''] = /^([^:]*)(?:: ?(.*))?$/.exec(line) ?? [];
      if (line === '') {
        if (event.data) yield event;
        event = { id: '', kind: '', data: '' };
      } else if (field === 'id') event.id = value;
      else if (field === 'event') event.kind = value;
      else if (field === 'data') event.data += value;
    }
  }
}

/** Every event of a job once, from `after` on; a broken connection goes on by Last-Event-ID. */
async function* watch(url: string, token: string, after: string): AsyncGenerator<ServerSentEvent, void> {
  let cursor = after;
  let heardAt = Date.now();
  for (;;) {
    const connection = new AbortController();
    const timer = setTimeout(() => connection.abort(), QUIET_MS);
    try {
      const answer = await fetch(url, {
        signal: connection.signal,
        headers: {
          accept: 'text/event-stream',
          ...(token && { authorization: `Bearer ${token}` }),
          ...(cursor && { 'last-event-id': cursor }),
        },
      });
      if (answer.status === 204) return; // the job is over, and its last event was seen
      if (answer.status !== 503) {
        if (!answer.ok || !answer.body) throw new Refused(await answer.text());
        for await (const event of read(answer.body, () => timer.refresh())) {
          yield event;
          cursor = event.id;
          heardAt = Date.now();
        }
      }
    } catch (error) {
      if (error instanceof Refused || Date.now() - heardAt > PATIENCE_MS) throw error;
    } finally {
      clearTimeout(timer);
      connection.abort();
    }
    await sleep(PAUSE_MS);
  }
}

class Refused extends Error {}

const { values } = parseArgs({
  options: {
    url: { type: 'string', default: 'http://127.0.0.1:7431' },
    'token-file': { type: 'string' },
    job: { type: 'string' },
    after: { type: 'string', default: '' },
  },
});

try {
  if (!values.job) throw new Error('name the job: --job JOB');
  const tokenFile = values['token-file'];
  const token = tokenFile ? readFileSync(tokenFile, 'utf8').trim() : (process.env['PLAUDIT_TOKEN'] ?? '');
  for await (const event of watch(`${values.url}/v1/training_jobs/${values.job}/watch`, token, values.after)) {
    const told = JSON.parse(event.data);
    if (event.kind === 'step_metrics') {
      console.log(`step ${told.step_metrics.step}  reward_mean ${told.step_metrics.values.reward_mean}  [${event.id}]`);
    } else if (event.kind === 'status_changed') {
      console.log(`status ${told.status_changed.status}  [${event.id}]`);
    }
  }
} catch (error) {
  console.error(`error: ${(error as Error).message}`);
  process.exitCode = 2;
}
