package project

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func write(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		at := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLater(t *testing.T) {
	for name, c := range map[string]struct {
		project, host map[string]string
		want          []string
	}{
		"a Python project that is installed, older and later": {
			map[string]string{"pyproject.toml": "[project]\nname = \"My-Widget\"\nversion = \"1.2\"\n",
				".venv/lib/python3.9/site-packages/my_widget-1.1.dist-info/RECORD":     "older/x.py,,\n",
				".venv/lib/python3.9/site-packages/older/x.py":                         "",
				"venv/lib/python3.9/site-packages/my_widget_more-2.0.dist-info/RECORD": "more/x.py,,\n",
				"venv/lib/python3.9/site-packages/more/x.py":                           ""},
			map[string]string{
				".local/lib/python3.11/site-packages/my_widget-1.10.dist-info/RECORD": "my_widget/a.py,,\nw.py,,\n" +
					"../../../bin/w,,\n",
				".local/lib/python3.11/site-packages/my_widget/a.py":             "",
				".local/lib/python3.11/site-packages/w.py":                       "",
				".cache/pip/wheels/a/b/c/d/my_widget-1.2.post1-py3-none-any.whl": "",
				".cache/pip/wheels/a/b/c/d/my_widget-1.2-py3-none-any.whl":       "",
				".cache/pip/http-v2/x":                                           "",
				".cache/uv/archive-v0/k/my_widget-2.0.dist-info/METADATA":        ""},
			[]string{"home/.cache/pip/http-v2", "home/.cache/pip/wheels/a/b/c/d/my_widget-1.2.post1-py3-none-any.whl",
				"home/.cache/uv/archive-v0/k",
				"home/.local/lib/python3.11/site-packages/my_widget",
				"home/.local/lib/python3.11/site-packages/my_widget-1.10.dist-info",
				"home/.local/lib/python3.11/site-packages/w.py"}},
		"one whose version a script computes": {
			map[string]string{"setup.py": "setup(\n    name='widget',\n    version=read(),\n)\n"},
			map[string]string{".cache/pip/wheels/a/b/c/d/widget-0.1-py3-none-any.whl": ""},
			[]string{"home/.cache/pip/wheels/a/b/c/d/widget-0.1-py3-none-any.whl"}},
		"a package of npm": {
			map[string]string{"package.json": `{"name": "@s/widget", "version": "1.0.0"}`,
				"node_modules/@s/widget/package.json":                                    `{"version": "0.9.0"}`,
				"node_modules/tool/node_modules/@s/widget/x":                             "",
				"node_modules/.pnpm/@s+widget@2.0.0/node_modules/@s/widget/package.json": `{"version": "2.0.0"}`},
			map[string]string{
				".npm/_cacache/index-v5/aa/bb/x": "\nsum\t{\"key\":\"make-fetch-happen:request-cache:" +
					"https://registry.npmjs.org/@s/widget/-/widget-2.0.0.tgz\",\"integrity\":\"sha512-q83v\"}\n",
				".npm/_cacache/index-v5/aa/bb/y": "\nsum\t{\"key\":\"https://registry.npmjs.org/o/-/o-1.tgz\"," +
					"\"integrity\":\"sha512-EjRW\"}\n",
				".npm/_cacache/content-v2/sha512/ab/cd/ef": "", ".npm/_cacache/content-v2/sha512/12/34/56": ""},
			[]string{"home/.npm/_cacache/content-v2/sha512/ab/cd/ef", "home/.npm/_cacache/index-v5/aa/bb/x",
				"work/node_modules/.pnpm/@s+widget@2.0.0/node_modules/@s/widget",
				"work/node_modules/tool/node_modules/@s/widget"}},
		"a crate": {
			map[string]string{"Cargo.toml": "[package]\nname = \"widget\"\nversion = \"1.0.0\"\n"},
			map[string]string{".cargo/registry/cache/i/widget-1.0.1.crate": "",
				".cargo/registry/src/i/widget-0.9.0/x": "",
				".cargo/registry/src/i/widget-1.0.1/x": "", ".cargo/registry/src/i/widget-macros-2.0.0/x": ""},
			[]string{"home/.cargo/registry/cache/i/widget-1.0.1.crate", "home/.cargo/registry/src/i/widget-1.0.1"}},
		"a module of Go": {
			map[string]string{"go.mod": "module example.org/Some/widget/v2\n"},
			map[string]string{"go/pkg/mod/example.org/!some/widget@v1.0.0/x": "",
				"go/pkg/mod/example.org/!some/widget/v2@v2.0.0/x":                   "",
				"go/pkg/mod/example.org/!some/widget/sub@v1.0.0/x":                  "",
				"go/pkg/mod/cache/download/example.org/!some/widget/v2/@v/v2.0.zip": ""},
			[]string{"home/go/pkg/mod/cache/download/example.org/!some/widget/v2/@v",
				"home/go/pkg/mod/example.org/!some/widget/v2@v2.0.0",
				"home/go/pkg/mod/example.org/!some/widget@v1.0.0"}},
		"a package of npm in other stores": {
			map[string]string{"package.json": `{"name": "@s/widget", "version": "1.0.0"}`},
			map[string]string{".local/share/pnpm/store/v10/index/aa/abc-@s+widget@1.2.0.json": "",
				".local/share/pnpm/store/v10/index/aa/abc-@s+widget@0.2.0.json":  "",
				".local/share/pnpm/store/v10/index/aa/abc-@s+widgets@2.0.0.json": "",
				".cache/yarn/v6/npm-@s-widget-1.0.1-abc/x":                       "",
				".bun/install/cache/@s/widget@2.0.0/x":                           ""},
			[]string{"home/.local/share/pnpm/store/v10/index/aa/abc-@s+widget@1.2.0.json",
				"home/.cache/yarn/v6/npm-@s-widget-1.0.1-abc", "home/.bun/install/cache/@s/widget@2.0.0"}},
		"an artifact of Maven": {
			map[string]string{"pom.xml": "<project><parent><groupId>org.example</groupId>" +
				"<version>1.3-SNAPSHOT</version></parent><artifactId>widget</artifactId></project>"},
			map[string]string{".m2/repository/org/example/widget/1.3/widget-1.3.jar": "",
				".m2/repository/org/example/widget/1.2/widget-1.2.jar":          "",
				".m2/repository/org/example/widget-core/2.0/x":                  "",
				".gradle/caches/modules-2/files-2.1/org.example/widget/2.0/h/x": ""},
			[]string{"home/.m2/repository/org/example/widget/1.3",
				"home/.gradle/caches/modules-2/files-2.1/org.example/widget/2.0"}},
		"a gem": {
			map[string]string{"widget.gemspec": "Gem::Specification.new do |s|\n  s.name = 'widget'\n" +
				"  s.version = \"1.0.0\"\nend\n",
				"vendor/cache/widget-1.0.1.gem": ""},
			map[string]string{".gem/ruby/3.1.0/gems/widget-1.1.0/x": "", ".gem/ruby/3.1.0/gems/widget-0.9.0/x": "",
				".gem/ruby/3.1.0/gems/widget-tools-2.0.0/x": "", ".gem/ruby/3.1.0/cache/widget-1.1.0.gem": ""},
			[]string{"home/.gem/ruby/3.1.0/gems/widget-1.1.0", "home/.gem/ruby/3.1.0/cache/widget-1.1.0.gem",
				"work/vendor/cache/widget-1.0.1.gem"}},
		"a package of Composer": {
			map[string]string{"composer.json": `{"name": "s/widget"}`},
			map[string]string{".cache/composer/files/s/widget/x.zip": "", ".cache/composer/files/s/other/x.zip": ""},
			[]string{"home/.cache/composer/files/s/widget"}},
		"a name that would lead elsewhere": {
			map[string]string{"package.json": `{"name": "../../.ssh"}`, "go.mod": "module *\n"},
			map[string]string{".ssh/id": ""}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			root, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			work, home := filepath.Join(root, "work"), filepath.Join(root, "home")
			write(t, work, c.project)
			write(t, home, c.host)
			var got []string
			for _, path := range Later(work, home, nil) {
				if at, is := strings.CutPrefix(path, root+"/"); is {
					got = append(got, at)
				}
			}
			want := slices.Sorted(slices.Values(c.want))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestCompare(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"1.2", "1.10", -1}, {"2.0", "2.0.0", 0}, {"v1.0.0", "1.0.0", 0}, {"2.0rc1", "2.0", -1}, {"2.0.post1", "2.0", 1},
		{"1.0+cpu", "1.0", 0}, {"1.0.0-beta.2", "1.0.0-beta.1", 1}, {"3", "2.9.9", 1}} {
		if got := compare(c.a, c.b); got != c.want {
			t.Errorf("compare(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
