package policy_test

import (
	"fmt"

	"github.com/assay-run/assay-run/runner/policy"
	"github.com/assay-run/assay-run/schema/policyfile"
)

// A policy is read once and then asked about each call. Every violation is
// named, so that a reader sees all the reasons at once.
func Example() {
	file, err := policyfile.ParseYAML([]byte(`
tools: {deny: [shell]}
rules:
- {name: stay_home, rule: deny_tool_param, target: read_file, key: path, value: /etc/passwd}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	set := policy.NewSet(file)
	for _, call := range []*policy.Call{
		{Tool: "read_file", Params: []byte(`{"path": "notes.txt"}`)},
		{Tool: "read_file", Params: []byte(`{"path": "/etc/passwd"}`)},
		{Tool: "shell"},
	} {
		violations := set.Check(call)
		fmt.Println(call.Tool, "allowed:", len(violations) == 0)
		for _, v := range violations {
			fmt.Println("  denied by", v.Rule)
		}
	}
	// Output:
	// read_file allowed: true
	// read_file allowed: false
	//   denied by stay_home
	// shell allowed: false
	//   denied by tools.deny
}
