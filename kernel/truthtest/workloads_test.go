//go:build linux && amd64

package truthtest

// workloads run in the order of this table, one at a time. Each ends with
// status 0 and leaves its programs in place, so that exec's paths can be
// resolved afterwards.
var workloads = []*workload{
	{
		name: "shell pipelines",
		script: `set -e
printf '%s\n' c b a > list
sort list | uniq -c | sed 's/^ *//' > counts
cat list nope 2>/dev/null | tr a-z A-Z | tee upper | wc -l >/dev/null || true
for i in 1 2 3 4 5; do echo $i | cat >> numbers; done
seq 1 2000 | grep 7 | awk '{s += $1} END {print s}' > sum
(no-such-program) 2>/dev/null || true
/bin/sh -c 'exec ./not-executable' 2>/dev/null || true
sed -i s/a/z/ list
printf '#!/bin/sh -e\necho "$@" > by-script\n' > script; printf "#!$PWD/script two words\n" > script2; chmod +x script script2
printf '#!/nowhere/interpreter\n' > bad; chmod +x bad; ./bad 2>/dev/null || true; sh -c 'kill -SEGV $$' || true
./script 'a b' ''; ./script2 c; ln -s script link; ./link
for i in 1 2 3; do : > same; done; sh -c 'for i in 1 2 3; do : < same; done; exec sh -c "for i in 1 2; do : < same; done; exec cat same"'
head -c 100000 /dev/zero | gzip -c | gunzip -c | cksum > sumz`,
		varies: []replacement{{`/sed[A-Za-z0-9]{6}`, "/sedTMP", "sed -i makes a temporary name"}},
	},
	{
		name: "files",
		script: `set -e
mkdir -p d/e/f && cd d
echo one > a; cp a b; ln a hard; ln -s a soft; ln -s nowhere dangling
mv b e/b; mv e/b e/f/; mv -n a hard
chmod 640 a; chmod -R g+w e; chmod 600 none 2>/dev/null || true
truncate -s 100 a; truncate -s 0 hard; : > a
rm soft dangling; rm nothing 2>/dev/null || true
mkdir e 2>/dev/null || true; rmdir e 2>/dev/null || true
rm -r e; ln -s . loop; cat loop/loop/a loop/../d/a > /dev/null
cd ..; mkdir x y; rmdir x; mv y z; touch z/1 z/2 z/3; cp -a z copy; rm -rf z; (cd copy && cd .. && mkdir again)
ln -s copy dir; echo x > dir/4; rm dir/4; mv dir/1 dir/one
touch owned; chown 12:34 owned; chown -h :0 d/dangling 2>/dev/null || true; chown 1 gone 2>/dev/null || true
mkfifo pipe; (echo through > pipe &) ; cat pipe
install -m 700 -d made/by/install; unlink d/hard`,
	},
	{
		name:     "odd names",
		programs: []string{"python3"},
		script:   `exec /usr/bin/python3 "$SRC/testdata/odd.py"`,
		varies:   []replacement{{`/#\d+"`, `/#INODE"`, "a file without a name is called by its inode"}},
	},
	{
		name:     "git",
		programs: []string{"git"},
		sets:     "git reads a file again when it is as new as its index, which is a matter of milliseconds",
		script: `set -e
git init -q -b main r; cd r
git config core.fsmonitor false
for i in 1 2 3; do echo $i > f$i; git add f$i; git commit -q -m c$i; done
git checkout -q -b side HEAD~1; echo s > s; git add s; git commit -q -m s; git rebase -q main
git checkout -q main; git merge -q --ff-only side; git mv f1 g1; git rm -q f2; git commit -q -m moved
git tag v1; git branch -d side 2>/dev/null >&2; git stash list; git log --oneline >/dev/null; git status --short
git repack -q -a -d; cd ..; git clone -q r clone; git clone -q --no-local r far
cd far; git fetch -q; git diff HEAD~1 --stat > ../stat`,
		varies: []replacement{
			{`(open "[^"]*/w/r/)[a-z]\d?(" "flags=0x80000 mode=0" = ok)`, "${1}FILE$2",
				"which files it reads again, the same"},
			{`/tmp_(obj|pack|idx|rev|mtimes)_[A-Za-z0-9]{6}`, "/tmp_$1_TMP",
				"git writes objects under temporary names"},
			{`/info/(packs|refs)_[A-Za-z0-9]{6}`, "/info/$1_TMP", "git update-server-info makes temporary names"},
			{`/\.git/t[A-Za-z0-9]{6}"`, `/.git/tTMP"`, "git init tries links under a temporary name"},
			{`/\.tmp-\d+-pack`, "/.tmp-PID-pack", "git repack names packs by its pid"},
			{`--keep(=| )[^"]*?(\d+) on`, "--keep${1}PID on", "fetch-pack tells index-pack its pid"},
		},
	},
	{
		name:     "make",
		programs: []string{"make", "gcc", "ar"},
		script: `set -e
for i in 1 2 3 4; do echo "int f$i(void) { return $i; }" > f$i.c; done
printf '%s\n' 'int f1(void), f2(void), f3(void), f4(void);' 'int main(void) { return f1() + f2() + f3() + f4() - 10; }' > main.c
printf 'OBJ = main.o f1.o f2.o f3.o f4.o\nprog: $(OBJ)\n\tgcc -o $@ $(OBJ)\n%%.o: %%.c\n\tgcc -O1 -c -o $@ $<\n' > Makefile
make -s -j2 && ./prog && touch f1.c && make -s && make -s -n && ar rc lib.a f1.o f2.o`,
		varies: []replacement{
			{`/cc[A-Za-z0-9]{6}`, "/ccTMP", "gcc makes temporary names"},
			{`/GMfifo\d+`, "/GMfifoPID", "make names its job server by its pid"},
			{`/st[A-Za-z0-9]{6}`, "/stTMP", "ar makes a temporary name"},
		},
	},
	{
		name:     "python",
		programs: []string{"python3"},
		script:   `exec /usr/bin/python3 "$SRC/testdata/work.py"`,
		varies: []replacement{
			{`/tmp[a-z0-9_]{8}`, "/tmpTMP", "tempfile makes random names"},
			{`/w/[a-z0-9_]{8}" "flags=0xa00c2`, `/w/TMP" "flags=0xa00c2`,
				"tempfile tries a directory with a random name"},
			{`(unlink "[^"]*/w/)[a-z0-9_]{8}"`, `${1}TMP"`, "and removes it"},
			{`/sem\.mp-[a-z0-9_]{8}`, "/sem.mp-TMP", "multiprocessing names its semaphores at random"},
			{`/sem\.[A-Za-z0-9]{6}"`, `/sem.TMP"`, "sem_open makes a temporary name"},
		},
	},
	{
		name:     "node",
		programs: []string{"node"},
		sets:     "V8 looks at its own mappings and image as often as its threads get to",
		script:   `exec node "$SRC/testdata/work.js"`,
		varies: []replacement{
			{`/t-[A-Za-z0-9]{6}`, "/t-TMP", "mkdtemp makes a random name"},
			{`^open "[^"]*/node" "flags=0x0 mode=0" = ok$`, "", "V8 looks at its image where its threads get to"},
			{`(/sys/fs/cgroup/[^"]*?)assay-run[^"/]*(/run_[a-z0-9]+)?`, "${1}SESSION",
				"node reads the limits of its cgroup, which is named after the run"},
		},
	},
	{
		name:     "curl",
		programs: []string{"curl"},
		script: `set -e
curl -s -o page "$SERVER/page"; curl -s -f "$SERVER/missing" || true
curl -s -o a "$SERVER/a" -o b "$SERVER/b"; curl -s http://127.0.0.1:1/ || true
curl -s --unix-socket ./no.sock http://x/ || true; curl -s http://[::1]:1/ || true`,
	},
	{
		name:     "sqlite",
		programs: []string{"sqlite3"},
		script: `set -e
sqlite3 db 'create table t(a, b); create index i on t(a);'
sqlite3 db 'begin; insert into t values (1, 2); insert into t values (3, 4); commit; select count(*) from t;'
for i in 1 2 3; do sqlite3 db "begin; insert into t values ($i, 0); rollback;"; done
sqlite3 db 'pragma journal_mode=wal; insert into t select a + 10, b from t; pragma wal_checkpoint;'
sqlite3 db 'vacuum; create temp table x as select * from t; select count(*) from x;'
sqlite3 missing/db 'select 1 from t' 2>/dev/null || true`,
		varies: []replacement{{`/etilqs_[a-z0-9]+`, "/etilqs_TMP", "sqlite makes random names"}},
	},
	{
		name: "tar",
		script: `set -e
mkdir -p in/sub; echo a > in/a; ln in/a in/hard; ln -s a in/soft; ln -s /nonexistent in/abs; chmod 750 in/sub
seq 1 1000 > in/sub/long; tar cf t.tar in; tar czf t.tgz in
mkdir out; tar xf t.tar -C out; tar xzpf t.tgz -C out --overwrite; tar tf t.tar >/dev/null
cp -a in copy; mkdir stream; tar cf - in | tar xf - -C stream; diff -r --no-dereference in copy`,
	},
	{
		name: "find",
		script: `set -e
for d in a b c; do mkdir -p $d/x/y; for i in 1 2 3 4 5; do echo $i > $d/x/f$i; echo $i > $d/x/y/g$i; done; done
find . -name 'f*' -print0 | xargs -0 -n 4 cat > all
find . -type f -name 'g*' | xargs grep -l 3 > hits
find . -name f5 -delete; find b -type d -exec chmod 700 {} +; find c -depth -exec rm -rf {} \; 2>/dev/null || true
find a -type f | sort | xargs -P 2 -n 3 md5sum > sums; du -s . > size`,
	},
	{
		name: "small files",
		script: `set -e
mkdir -p node_modules; i=0
while [ $i -lt 60 ]; do p=node_modules/p$i; mkdir -p $p/lib; echo '{}' > $p/package.json; echo "x = $i" > $p/lib/index.js
	ln -s ../p$i/lib/index.js node_modules/bin$i; i=$((i+1)); done
cp -a node_modules copy; mv copy moved; rm -rf moved; tar cf - node_modules | gzip -1 > n.tgz; ls -R node_modules > listing`,
	},
	{
		name:     "mounts",
		programs: []string{"unshare"},
		script: `exec unshare -m /bin/sh -ec '
mkdir a b c low up wk m; echo in a > a/f; echo low > low/lower; echo two > low/second
mount --bind a b; cat b/f; echo new > b/g; mv b/g b/h; rm b/h
mount -t tmpfs none c; mkdir c/d; echo t > c/d/t; ln -s t c/d/s; cat c/d/s
mount --bind c/d b; cat b/t b/s
mount -t overlay none -o lowerdir=low,upperdir=up,workdir=wk m
cat m/lower; echo more >> m/second; mv m/lower m/moved; rm m/moved; mkdir m/new; cp /bin/true m/new/prog; m/new/prog; chmod 600 m/second
cd b; cat t; mkdir e; cd ../b/e; echo > here; mv here ../there; cd ../../c/d; rm there; rmdir e'`,
	},
	{
		name:     "pid namespace",
		programs: []string{"unshare"},
		script: `exec unshare -p -f --mount-proc /bin/sh -ec '
echo $$ > first; (echo inner > second; cat second); cat /proc/self/status > status; i=0
while [ $i -lt 20 ]; do /bin/true; echo $i > at$i; i=$((i+1)); done'`,
	},
}
