// Every kind of change to files that libuv can make in the background, and a
// connection that nobody answers.
const fs = require('fs/promises');
const net = require('net');

(async () => {
	await fs.mkdir('d');
	await fs.writeFile('d/a', 'hello');
	await fs.readFile('d/none').catch(() => {});
	await fs.rename('d/a', 'd/b');
	await fs.link('d/b', 'd/hard');
	await fs.symlink('b', 'd/soft');
	for (const f of ['soft', 'hard', 'b']) await fs.unlink('d/' + f);
	await fs.rmdir('d');
	await new Promise((done) => net.connect(1, '127.0.0.1').on('error', done));
})();
