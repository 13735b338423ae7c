import ts from 'typescript';
import { ConfigError, failed, scored, shown, unknownFields, type Outcome, type Reward } from './reward.js';

/** By language: the words that a block may begin with, and a name by which the compiler knows the language. */
const LANGUAGES = {
  ts: { fences: ['```ts', '```typescript'], fileName: 'block.ts' },
  tsx: { fences: ['```tsx'], fileName: 'block.tsx' },
  js: { fences: ['```js', '```javascript'], fileName: 'block.js' },
} as const;
type Language = keyof typeof LANGUAGES;

/** Of a block that does not parse, the lines before its first error earn up to this much. */
const MOST_FOR_A_BROKEN_BLOCK = 0.5;

export const typescriptParses: Reward = {
  info: {
    name: 'typescript_parses',
    description:
      '1 where the last code block of the completion parses as TypeScript; else 0.5 times the share of lines ' +
      'before the first syntax error.',
    scope: 'SCOPE_COMPLETION',
    minValue: 0,
    maxValue: 1,
    deterministic: true,
    configSchemaJson: JSON.stringify({
      type: 'object',
      additionalProperties: false,
      properties: {
        language: { enum: Object.keys(LANGUAGES), default: 'ts', description: 'Language of the block.' },
      },
    }),
  },

  configure(config) {
    const wrong = unknownFields(config, ['language']);
    const { language = 'ts' } = config;
    if (!isLanguage(language)) {
      const known = Object.keys(LANGUAGES).join(', ');
      wrong.push({ field: 'language', message: `${shown(String(language))} is none of ${known}` });
      throw new ConfigError(wrong);
    }
    if (wrong.length > 0) throw new ConfigError(wrong);
    const { fences, fileName } = LANGUAGES[language];
    return (_, completion) => {
      const code = lastFenced(completion.prefill + completion.text, fences);
      return code === undefined ? scored(0, `no block that begins with ${fences[0]}`) : grade(code, fileName);
    };
  },
};

function isLanguage(value: unknown): value is Language {
  return typeof value === 'string' && Object.hasOwn(LANGUAGES, value);
}

function grade(code: string, fileName: string): Outcome {
  let problems: readonly ts.Diagnostic[];
  try {
    const compilerOptions = { target: ts.ScriptTarget.ESNext, module: ts.ModuleKind.ESNext, jsx: ts.JsxEmit.Preserve };
    problems = ts.transpileModule(code, { fileName, reportDiagnostics: true, compilerOptions }).diagnostics ?? [];
  } catch (error) {
    if (error instanceof RangeError) return failed('CODE_INVALID', 'the code nests too deep to be parsed');
    throw error;
  }
  const [first] = [...problems].sort((a, b) => (a.start ?? 0) - (b.start ?? 0));
  if (first === undefined) return scored(1);
  const linesBefore = code.slice(0, first.start).split('\n').length - 1;
  const lines = code.trimEnd().split('\n').length;
  const message = ts.flattenDiagnosticMessageText(first.messageText, ' ');
  return scored(
    MOST_FOR_A_BROKEN_BLOCK * Math.min(linesBefore / lines, 1),
    `line ${linesBefore + 1}: ${message.slice(0, 500).toWellFormed()}`,
  );
}

/** The code of the last block that begins with one of `fences`. A block that was cut off ends with the text. */
function lastFenced(text: string, fences: readonly string[]): string | undefined {
  let code: string[] | undefined;
  let inside = false;
  for (const line of text.split('\n')) {
    const fence = line.trim();
    if (inside && fence === '```') inside = false;
    else if (inside) code?.push(line);
    else if (fences.includes(fence.toLowerCase())) {
      code = [];
      inside = true;
    }
  }
  return code && code.map((line) => `${line}\n`).join('');
}
