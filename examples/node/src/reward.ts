import type { Completion__Output } from './generated/plaudit/reward/v1/Completion.js';
import type { _plaudit_reward_v1_Failure_Code as FailureCode } from './generated/plaudit/reward/v1/Failure.js';
import type { PromptGroup__Output } from './generated/plaudit/reward/v1/PromptGroup.js';
import type { Result } from './generated/plaudit/reward/v1/Result.js';
import type { Reward as RewardInfo } from './generated/plaudit/reward/v1/Reward.js';

export type Config = Record<string, unknown>;
/** What came of one completion: exactly one of the three. */
export type Outcome = Pick<Result, 'score' | 'notApplicable' | 'failure'>;
export type Scorer = (group: PromptGroup__Output, completion: Completion__Output) => Outcome | Promise<Outcome>;

/** A reward on offer. */
export interface Reward {
  info: RewardInfo & { name: string };
  /** Checks the config of a session and makes the scorer. Throws a ConfigError for what is wrong. */
  configure(config: Config): Scorer;
}

/** Names every wrong field of a config. */
export class ConfigError extends Error {
  constructor(readonly wrong: { field: string; message: string }[]) {
    super(wrong.map(({ field, message }) => `${field}: ${message}`).join('; '));
  }
}

export const scored = (value: number, explanation = ''): Outcome => ({ score: { value, explanation } });
export const notApplicable = (reason: string): Outcome => ({ notApplicable: { reason } });
export const failed = (code: FailureCode, message: string): Outcome => ({ failure: { code, message } });

/** Those fields of a config that a reward does not know, as the beginning of what is wrong with it. */
export function unknownFields(config: Config, known: readonly string[]): { field: string; message: string }[] {
  return Object.keys(config)
    .filter((field) => !known.includes(field))
    .map((field) => ({ field, message: 'there is no such field' }));
}

/**
 * Quotes a text for people, shortened. A string of JavaScript may hold half of a surrogate pair, and a message
 * with one is no valid protobuf.
 */
export function shown(text: string): string {
  return JSON.stringify((text.length > 80 ? `${text.slice(0, 80)}…` : text).toWellFormed());
}
