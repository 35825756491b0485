//go:build linux && amd64

package truthtest

// longWorkloads are those that take longer or need more than the cheaper ones: make
// truth runs them beside those.
var longWorkloads = []*workload{
	{
		name: "gpg", long: true, programs: []string{"gpg"},
		script: `set -e; mkdir -m 700 home; echo secret > plain
echo x | gpg --homedir home --batch --yes --passphrase-fd 0 --pinentry-mode loopback -q --symmetric -o sealed plain
echo x | gpg --homedir home --batch --yes --passphrase-fd 0 --pinentry-mode loopback -q -o open --decrypt sealed
gpgconf --homedir home --kill all 2>/dev/null || true`,
	},
	{name: "openssl", long: true, programs: []string{"openssl"}, script: `set -e
openssl req -x509 -newkey rsa:2048 -nodes -keyout key -out cert -days 1 -subj /CN=x 2>/dev/null
openssl x509 -in cert -noout -text > text; openssl dgst -sha256 -sign key -out sig text`},
	{name: "ssh-keygen", long: true, programs: []string{"ssh-keygen"}, script: `set -e
ssh-keygen -q -t ed25519 -N '' -f key; ssh-keygen -y -f key > pub; ssh-keygen -l -f key.pub > print`},
	{name: "perl", long: true, programs: []string{"perl"}, script: `set -e
perl -e 'use File::Temp; use File::Copy; open(F, ">a"); print F "x\n" x 100; close F; copy("a", "b"); rename("b", "c"); unlink("a")'
perl -MData::Dumper -MFile::Find -e 'find(sub { $n++ }, "."); print $n' > n`},
	{
		name: "cc", long: true, programs: []string{"cc", "g++"}, script: `set -e
printf '#include <stdio.h>\nint main(void) { puts("x"); return 0; }\n' > a.c
printf '#include <string>\nint main() { return std::string("x").size() - 1; }\n' > b.cc
cc -O2 -o a a.c; g++ -O1 -o b b.cc; ./a > out; ./b; cc -O1 -flto -o l a.c`,
	},
	{
		name: "go build", long: true, programs: []string{"go"},
		script: `set -e; export PATH=$HOSTPATH GOCACHE=$PWD/cache GOPATH=$PWD/path GOFLAGS=-mod=mod GOTOOLCHAIN=local GOTELEMETRY=off
mkdir m; cd m; printf 'module x\ngo 1.21\n' > go.mod; printf 'package main\nfunc main() { println(1) }\n' > main.go; go build -p 1 -o x . && ./x 2>/dev/null`,
	},
	{
		name: "cargo", long: true, programs: []string{"cargo"},
		script: `set -e; export PATH=$HOSTPATH CARGO_HOME=$PWD/home RUSTUP_HOME=$HOSTHOME/.rustup HOME=$PWD; cargo -q init --vcs none --name x p; cd p; cargo -q build --offline -j 1; ./target/debug/x > out`,
	},
	{
		name: "java", long: true, programs: []string{"javac", "java"},
		script: `set -e; printf 'class A { public static void main(String[] a) throws Exception { java.nio.file.Files.writeString(java.nio.file.Path.of("out"), "x"); } }\n' > A.java
javac A.java; java -XX:TieredStopAtLevel=1 A`,
	},
	{name: "archives", long: true, programs: []string{"zip", "xz", "zstd"}, script: `set -e
seq 1 5000 > n; zip -q n.zip n; unzip -q -o n.zip -d out; xz -k n; xz -dc n.xz > m; zstd -q -k n; zstd -q -dc n.zst | cmp - n`},
	{name: "dpkg", long: true, programs: []string{"dpkg"},
		script: `set -e; dpkg -l > list; dpkg -L coreutils > files; dpkg -S /bin/ls > owner; dpkg-query -W -f '${Package}\n' bash > one`},
	{name: "bwrap", long: true, programs: []string{"bwrap"},
		script: `set -e; bwrap --ro-bind / / --dev /dev --proc /proc --bind "$PWD" "$PWD" --unshare-pid /bin/sh -c 'echo in > inside; cat inside > copy; rm inside'`},
	{name: "jq", long: true, programs: []string{"jq"},
		script: `set -e; seq 1 100 | jq -s 'map(. * 2) | add' > sum; echo '{"a":1}' > a.json; jq .a a.json > a; jq . none 2>/dev/null || true`},
	{name: "busybox", long: true, programs: []string{"busybox"},
		script: `mkdir d; echo x > d/a; busybox cp d/a d/b; busybox mv d/b d/c; busybox ln -s a d/l; busybox find d > list; busybox rm -r d`},
	{name: "node 22", long: true, programs: []string{nodes + "22" + nodeIn}, script: `exec ` + nodes + "22" + nodeIn +
		` "$SRC/testdata/work.js"`},
	{name: "node 24", long: true, programs: []string{nodes + "24" + nodeIn}, script: `exec ` + nodes + "24" + nodeIn +
		` "$SRC/testdata/work.js"`},
	{name: "npm", long: true, programs: []string{"npm"},
		script: `set -e; mkdir p; cd p; npm init -y > /dev/null; npm pkg set a=b; npm ls > /dev/null 2>&1 || true`},
	{
		name: "postgres", long: true, programs: []string{"setpriv", "/usr/lib/postgresql/15/bin/initdb"},
		script: `set -e
chmod 755 "$PWD" "$PWD/.." "$PWD/../.." "$PWD/../../.." 2>/dev/null || true; mkdir pg; chown nobody:nogroup pg; cd pg
cat > run <<'END'
set -e; PATH=/usr/lib/postgresql/15/bin:$PATH; export HOME=$PWD
initdb -D data -U me --no-sync > init.log; pg_ctl -s -D data -o "-k $PWD -c listen_addresses=127.0.0.1 -p 54329 -c fsync=off" -l log -w start
psql -q -h 127.0.0.1 -p 54329 -U me postgres -c 'create table t(a int, b text); insert into t select i, md5(i::text) from generate_series(1, 2000) i; create index on t(a)'
psql -q -h "$PWD" -p 54329 -U me postgres -c "copy t to '$PWD/out'" ; psql -q -h 127.0.0.1 -p 54329 -U me postgres -c 'select count(*) from t' > count
pg_ctl -s -D data -m fast -w stop
END
exec setpriv --reuid nobody --regid nogroup --clear-groups /bin/sh run`,
	},
	{
		name: "nginx", long: true, programs: []string{"/usr/sbin/nginx", "ab"},
		script: `set -e; chmod 755 .; PATH=/usr/sbin:$PATH; mkdir www tmp; echo page > www/page; seq 1 20000 > www/large
cat > conf <<END
daemon on; pid $PWD/pid; error_log $PWD/errors; worker_processes 2; user nobody nogroup;
events { worker_connections 64; }
http { access_log $PWD/access; root $PWD/www; sendfile on; client_body_temp_path $PWD/tmp/a; proxy_temp_path $PWD/tmp/b; fastcgi_temp_path $PWD/tmp/c; uwsgi_temp_path $PWD/tmp/d; scgi_temp_path $PWD/tmp/e;
server { listen 127.0.0.1:8123; location /again { proxy_pass http://127.0.0.1:8123/page; } } }
END
nginx -c "$PWD/conf"; ab -q -n 300 -c 4 http://127.0.0.1:8123/page > ab1; ab -q -n 50 -c 2 http://127.0.0.1:8123/large > ab2; ab -q -n 50 -c 2 http://127.0.0.1:8123/again > ab3
ab -q -n 10 http://127.0.0.1:8123/none > ab4; nginx -c "$PWD/conf" -s quit; sleep 0.05; while [ -e pid ]; do sleep 0.05; done`,
	},
	{
		name: "redis", long: true, programs: []string{"redis-server", "redis-cli", "redis-benchmark"}, script: `set -e
redis-server --port 7391 --daemonize yes --dir "$PWD" --pidfile "$PWD/pid" --logfile "$PWD/log" --appendonly yes --unixsocket "$PWD/s"
sleep 0.05; until redis-cli -p 7391 ping > pong 2>/dev/null; do sleep 0.05; done
redis-cli -s ./s set a b > ok; redis-cli -p 7391 eval 'for i = 1, 100 do redis.call("set", i, i) end' 0 > none; redis-benchmark -p 7391 -n 500 -c 3 -q > bench
redis-cli -p 7391 bgsave > save; sleep 0.3; redis-cli -p 7391 shutdown || true; while [ -e pid ]; do sleep 0.05; done`,
	},
	{
		name: "apt", long: true, programs: []string{"apt-get", "apt-cache", "dpkg-deb"}, script: `set -e
mkdir -p state/lists/partial cache/archives/partial repo/DEBIAN; printf 'Package: x\nVersion: 1\nArchitecture: all\nMaintainer: x\nDescription: x\n' > repo/DEBIAN/control
mkdir r; dpkg-deb -b repo r/x.deb > /dev/null; (cd r; { dpkg-deb -f x.deb; echo "Filename: ./x.deb"; echo "Size: $(stat -c %s x.deb)"; echo "SHA256: $(sha256sum x.deb | cut -d' ' -f1)"; } > Packages)
echo "deb [trusted=yes] file:$PWD/r ./" > list; : > state/status
o="-o Dir::State=$PWD/state -o Dir::State::status=$PWD/state/status -o Dir::Cache=$PWD/cache -o Dir::Etc::sourcelist=$PWD/list -o Dir::Etc::sourceparts=- -o APT::Sandbox::User=root -o Debug::NoLocking=1"
apt-get $o -qq update > up 2>&1; apt-cache $o show x > shown; apt-get $o -qq -s install x > plan; apt-get $o -qq download x > got 2>&1`,
	},
	{
		name: "mvn", long: true, programs: []string{"mvn"}, script: `set -e
printf '<project><modelVersion>4.0.0</modelVersion><groupId>x</groupId><artifactId>x</artifactId><version>1</version></project>' > pom.xml
mvn -o -B -q -Dmaven.repo.local="$PWD/repo" validate > log 2>&1 || true; mvn -o -B -Dmaven.repo.local="$PWD/repo" compile > log2 2>&1 || true`,
	},
	{name: "ruby", long: true, programs: []string{"ruby"}, script: `set -e
ruby -e 'require "fileutils"; require "json"; FileUtils.mkdir_p("a/b"); File.write("a/b/c", JSON.dump([1, 2])); FileUtils.cp_r("a", "z"); FileUtils.mv("z/b/c", "z/d"); FileUtils.rm_rf("a"); system("cat z/d > out")'
ruby -rset -ropen3 -e 'o, s = Open3.capture2("sort", stdin_data: "b\na\n"); File.write("sorted", o)'`},
	{name: "sudo", long: true, programs: []string{"sudo"}, open: []string{"netlink AUDIT_USER_message"},
		script: `set -e; sudo -n -u nobody /bin/sh -c 'id > /dev/null; cat /etc/hostname' > name; sudo -n true; sudo -n -u nobody cat /etc/shadow 2>/dev/null || true`},
	{name: "rsync", long: true, programs: []string{"rsync"},
		script: `set -e; mkdir -p a/b; seq 1 3000 > a/f; seq 1 10 > a/b/g; ln -s f a/l; rsync -a a/ c/; echo x >> a/f; rm a/b/g; rsync -a --delete --checksum a/ c/; diff -r --no-dereference a c`},
	{name: "git worktrees", long: true, programs: []string{"git"}, script: `set -e
git init -q -b main r; cd r; for i in 1 2 3 4 5 6; do mkdir d$i; echo $i > d$i/f; git add .; git commit -q -m c$i; done
for i in 1 2 3; do git worktree add -q ../w$i -b b$i HEAD~$i; (cd ../w$i; echo x > new; git add new; git commit -q -m new); done
git worktree list > ../list; git worktree remove ../w1; git worktree prune; git gc -q; git fsck > ../fsck 2>&1`},
	{name: "symlinked parents", long: false, script: `set -e
mkdir -p real/sub here; ln -s ../real/sub here/link; ln -s here/link chain; echo 1 > real/victim; echo 2 > here/victim; echo 3 > real/sub/x
rm here/link/../victim; mv chain/x chain/../y; mkdir chain/../new; rmdir here/link/../new; chmod 600 chain/../y; touch here/../real/z; rm -f chain/none here/link/../none`},
}
