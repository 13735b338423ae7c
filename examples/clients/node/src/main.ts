// Creates a training job, and prints its metrics as they come: node dist/main.js [OPTIONS] JOB.json

import { readFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { connect } from './gateway.js';
import { type JobFile, create, watch } from './jobs.js';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    address: { type: 'string', default: process.env['PLAUDIT_ADDRESS'] ?? '127.0.0.1:7430' },
    'token-file': { type: 'string' },
    tls: { type: 'boolean', default: false },
    'ca-file': { type: 'string' },
    keys: { type: 'string', default: 'reward_mean,loss' },
    job: { type: 'string' },
    after: { type: 'string' },
  },
});

async function main(): Promise<number> {
  const tokenFile = values['token-file'];
  const gateway = connect({
    address: values.address,
    token: tokenFile ? readFileSync(tokenFile, 'utf8').trim() : (process.env['PLAUDIT_TOKEN'] ?? ''),
    tls: values.tls || values['ca-file'] !== undefined,
    caFile: values['ca-file'],
  });
  let id = values.job;
  if (id === undefined) {
    const [file] = positionals;
    if (file === undefined) throw new Error('name the file of a job, or --job of one that is there');
    id = (await create(gateway, JSON.parse(readFileSync(file, 'utf8')) as JobFile)).id;
    console.log(`job ${id}`);
  }
  const keys = values.keys.split(',');
  let ended = '';
  for await (const event of watch(gateway, id, values.after)) {
    if (event.step_metrics) {
      const { step, total_steps: total, values: metrics } = event.step_metrics;
      const shown = keys.filter((key) => key in metrics).map((key) => `${key} ${metrics[key]?.toPrecision(4)}`);
      console.log(`step ${step}/${total || '?'}  ${shown.join('  ')}  [${event.cursor}]`);
    } else if (event.status_changed) {
      ended = event.status_changed.status.replace('TRAINING_JOB_STATUS_', '').toLowerCase();
      const why = event.status_changed.error?.message || event.status_changed.detail;
      console.log(`status ${ended}${why ? `: ${why}` : ''}  [${event.cursor}]`);
    } else if (event.alert) {
      console.log(`alert ${event.alert.kind}: ${event.alert.message}`);
    }
  }
  gateway.jobs.close();
  return ended === 'completed' ? 0 : 1;
}

try {
  process.exitCode = await main();
} catch (error) {
  console.error(`error: ${(error as Error).message}`);
  process.exitCode = 2;
}
