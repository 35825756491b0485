package view

import (
	"regexp"
	"testing"
)

var sgr = regexp.MustCompile(`\x1b\[[0-9;]*m`)

func TestRowsShowWhatWasDeniedAndWhatFailed(t *testing.T) {
	const r, y, end = red, yellow, reset
	for _, want := range []string{
		"        TIME      PID  KIND           RESULT     WHAT",
		"    0.598086    20467  openat         ENOENT     /nonexist  r",
		"    0.598086    20467  openat         " + r + "EACCES" + end + "     /etc/shadow  r",
		"    0.598086    20467  file_blocked   " + r + "blocked" + end + "    /etc/shadow",
		"    0.598152    20467  exit           " + r + "exit 1" + end + "     ",
		"    0.598152    20467  exit           exit 0     ",
		"    0.602962    20469  exit           " + r + "SIGKILL" + end + "    ",
		"    0.598086    20467  openat         ok         /a  1 2  openat blocked [claimed]",
		"    0.598086    20467  connect        " + r + "EPERM" + end + "      192.0.2.1:443  " + y + "[claimed]" + end,
		"run.tar.gz                   0.598152    20467  exit           " + r + "exit 1" + end,
		"    0.598086        -  tool_call      policy     {\"tool\":\"shell\",\"decision\":\"" + r + "deny" + end +
			"\"}",
		`    0.598086        -  tool_call      policy     {"tool":"\"decision\":\"deny\"","decision":"allow"}`,
		"call_1                       shell                " + r + "deny" + end + "          3",
		"call_1                       deny                 allow         3",
	} {
		if got := Rows(sgr.ReplaceAllString(want, "")); got != want {
			t.Errorf("painted\n%q, want\n%q", got, want)
		}
	}
}
