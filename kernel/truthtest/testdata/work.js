// Child processes, and files through the sync and the threaded calls.
const fs = require('fs'), cp = require('child_process'), path = require('path');
const { Worker } = require('worker_threads');

async function main() {
  fs.mkdirSync('a/b/c', { recursive: true });
  fs.writeFileSync('a/one', '1');
  fs.appendFileSync('a/one', '2');
  fs.renameSync('a/one', 'a/b/two');
  fs.symlinkSync('b/two', 'a/link');
  fs.linkSync('a/b/two', 'a/hard');
  fs.truncateSync('a/b/two', 1);
  fs.chmodSync('a/hard', 0o600);
  fs.copyFileSync('a/hard', 'a/copy');
  const tmp = fs.mkdtempSync('t-');
  fs.rmSync(tmp, { recursive: true });
  await Promise.all([1, 2, 3, 4, 5, 6].map(async (i) => {
    await fs.promises.writeFile('p' + i, 'x');
    await fs.promises.readFile('p' + i);
    await fs.promises.unlink('p' + i);
    await fs.promises.open('missing' + i).catch(() => {});
  }));
  cp.execFileSync('cat', ['a/copy']);
  cp.execSync('echo shell > a/shell; cat a/shell');
  await new Promise((done) => cp.spawn('sh', ['-c', 'exit 3']).on('exit', done));
  await new Promise((done) => cp.spawn('no-such-program').on('error', done));
  cp.execFileSync(process.execPath, ['-e', 'require("fs").writeFileSync("by-child", "")']);
  await new Promise((done) => new Worker('require("fs").writeFileSync("by-worker", "")', { eval: true }).on('exit', done));
  fs.cpSync('a', 'whole', { recursive: true });
  fs.rmSync('a', { recursive: true });
}
main();
