package runner

import "testing"

func TestHostsThatCanHaveAnAnswer(t *testing.T) {
	for domain, has := range map[string]string{
		"github.com": "repositories", "api.github.com:443": "repositories", "*.github.com": "repositories",
		"*.python.org": "", "*.pythonhosted.org": "packages", "PyPI.org:443": "packages", "notpypi.org": "",
		"pypi.org.example.net": "", "mirror.example.net": "", "localhost:8080": "", "10.1.2.3": "", "[fd00::1]:80": "",
		"140.82.121.4:443": "no name, so it can be any host", "[2606:50c0::1]": "no name, so it can be any host",
	} {
		if got := holdsAnswers(domain); got != has {
			t.Errorf("%s has %q, want %q", domain, got, has)
		}
	}
}
