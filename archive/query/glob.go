package query

import (
	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"github.com/bmatcuk/doublestar/v4"
)

// globFunction adds TEXT.glob(PATTERN): ** also matches slashes, * does not.
func globFunction() cel.EnvOption {
	return cel.Function("glob",
		cel.MemberOverload("string_glob_string", []*cel.Type{cel.StringType, cel.StringType}, cel.BoolType,
			cel.BinaryBinding(func(text, pattern ref.Val) ref.Val {
				p := string(pattern.(types.String))
				ok, err := doublestar.Match(p, string(text.(types.String)))
				if err != nil {
					return types.NewErr("%q is not a valid glob", p)
				}
				return types.Bool(ok)
			})))
}
