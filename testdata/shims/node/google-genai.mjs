// A @google/genai agent with automatic function calling that reports its tool
// calls. ../python/gemini.py takes the place of the model, so that no network
// is needed.
//
//   python3 ../python/gemini.py node google-genai.mjs FILE...
import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { promisify } from 'node:util';
import { GoogleGenAI, Type } from '@google/genai';
import { AssayShim } from './assay-shim.mjs';

const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.resolve('@google/genai'))));
const shim = new AssayShim({ source: 'google-genai', name: '@google/genai', version });
const run = promisify(execFile);

const readFile = {
  tool: async () => ({
    functionDeclarations: [{
      name: 'read_file',
      description: 'Reads a file.',
      parameters: { type: Type.OBJECT, properties: { path: { type: Type.STRING } }, required: ['path'] },
    }],
  }),
  callTool: (calls) => Promise.all(calls.map(({ id, name, args }) =>
    shim.call(id ?? randomUUID(), name, async (env) => { // not every model gives an id
      const { stdout } = await run('cat', ['--', args.path], { env });
      return { functionResponse: { id, name, response: { output: stdout } } };
    }))),
};

const files = process.argv.length > 2 ? process.argv.slice(2) : ['/etc/hostname'];
try {
  const { text } = await new GoogleGenAI({}).models.generateContent({
    model: 'gemini-2.5-flash',
    contents: ['Read the files.', ...files].join('\n'),
    config: { tools: [readFile] },
  });
  shim.finished();
  console.log(text);
} catch (err) {
  shim.failed();
  throw err;
}
