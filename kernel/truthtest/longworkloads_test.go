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
	{name: "dpkg", long: true, programs: []string{"dpkg"}, script: `set -e; dpkg -l > list; dpkg -L coreutils > files; dpkg -S /bin/ls > owner; dpkg-query -W -f '${Package}\n' bash > one`},
	{name: "bwrap", long: true, programs: []string{"bwrap"}, script: `set -e; bwrap --ro-bind / / --dev /dev --proc /proc --bind "$PWD" "$PWD" --unshare-pid /bin/sh -c 'echo in > inside; cat inside > copy; rm inside'`},
	{name: "jq", long: true, programs: []string{"jq"}, script: `set -e; seq 1 100 | jq -s 'map(. * 2) | add' > sum; echo '{"a":1}' > a.json; jq .a a.json > a; jq . none 2>/dev/null || true`},
	{name: "busybox", long: true, programs: []string{"busybox"}, script: `mkdir d; echo x > d/a; busybox cp d/a d/b; busybox mv d/b d/c; busybox ln -s a d/l; busybox find d > list; busybox rm -r d`},
	{name: "npm", long: true, programs: []string{"npm"}, script: `set -e; mkdir p; cd p; npm init -y > /dev/null; npm pkg set a=b; npm ls > /dev/null 2>&1 || true`},
	{name: "symlinked parents", long: false, script: `set -e
mkdir -p real/sub here; ln -s ../real/sub here/link; ln -s here/link chain; echo 1 > real/victim; echo 2 > here/victim; echo 3 > real/sub/x
rm here/link/../victim; mv chain/x chain/../y; mkdir chain/../new; rmdir here/link/../new; chmod 600 chain/../y; touch here/../real/z; rm -f chain/none here/link/../none`},
}
