import type { ColumnValue__Output } from './generated/plaudit/reward/v1/ColumnValue.js';
import { ConfigError, failed, notApplicable, scored, shown, unknownFields, type Reward } from './reward.js';

const TAG = /^[A-Za-z][A-Za-z0-9_-]{0,62}$/;
const NUMBER = /^([+-]?)0*(\d{1,100})(?:\.(\d{1,100}))?$/;

export const answerTag: Reward = {
  info: {
    name: 'answer_tag',
    description: '1 where the number in the last <answer> tag equals column answer, else 0.',
    scope: 'SCOPE_COMPLETION',
    minValue: 0,
    maxValue: 1,
    deterministic: true,
    requiredColumns: ['answer'],
    configSchemaJson: JSON.stringify({
      type: 'object',
      additionalProperties: false,
      properties: {
        tag: { type: 'string', pattern: TAG.source, default: 'answer', description: 'Name of the tag.' },
      },
    }),
  },

  configure(config) {
    const wrong = unknownFields(config, ['tag']);
    const { tag = 'answer' } = config;
    if (typeof tag !== 'string' || !TAG.test(tag)) {
      wrong.push({ field: 'tag', message: `${shown(String(tag))} is no name of a tag` });
    }
    if (wrong.length > 0) throw new ConfigError(wrong);

    return (group, completion) => {
      const column = group.columns['answer'];
      if (column === undefined) return failed('CODE_INVALID', 'column answer is missing');
      if (column.kind === undefined) return notApplicable('column answer is null');
      const isRight = comparison(column);
      if (isRight === undefined) {
        return failed('CODE_INVALID', `column answer holds ${shown(String(column[column.kind]))}, which is no number`);
      }
      const text = lastTagged(completion.prefill + completion.text, String(tag));
      if (text === undefined) return scored(0, `no <${tag}> tag that is closed`);
      const answer = normalized(text);
      if (answer === undefined) return scored(0, `${shown(text)} is no number`);
      return isRight(answer) ? scored(1) : scored(0, `${shown(text)} is not the answer`);
    };
  },
};

/**
 * Tells whether an answer, as normal decimal text, is the column's number. Whole numbers are compared as text, so
 * that 2^70 is itself; a double with the double that is nearest to the answer.
 */
function comparison(column: ColumnValue__Output): ((answer: string) => boolean) | undefined {
  if (column.kind === 'doubleValue') return (answer) => Number(answer) === column.doubleValue;
  if (column.kind === 'boolValue') return undefined;
  const expected = normalized(column.intValue ?? column.stringValue ?? column.jsonValue ?? '');
  return expected === undefined ? undefined : (answer) => answer === expected;
}

/** Decimal text without leading or trailing zeros, so that equal numbers are equal texts; undefined for no number. */
function normalized(text: string): string | undefined {
  const match = NUMBER.exec(text.trim());
  if (match === null) return undefined;
  const [, sign, whole, decimals = ''] = match;
  const fraction = decimals.replace(/0+$/, '');
  const magnitude = fraction === '' ? whole : `${whole}.${fraction}`;
  return sign === '-' && magnitude !== '0' ? `-${magnitude}` : magnitude;
}

/** The text of the last tag that is closed. */
function lastTagged(text: string, tag: string): string | undefined {
  const end = text.lastIndexOf(`</${tag}>`);
  if (end < 0) return undefined;
  const opening = `<${tag}>`;
  const start = text.lastIndexOf(opening, end - opening.length);
  return start < 0 || end < opening.length ? undefined : text.slice(start + opening.length, end);
}
