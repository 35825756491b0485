package console

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// Completes makes completion offer values for flags of cmd, by the flags' names.
func Completes(cmd *cobra.Command, values map[string][]string) {
	for name, list := range values {
		err := cmd.RegisterFlagCompletionFunc(name,
			func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
				before := typed[:strings.LastIndexByte(typed, ',')+1] // of a list
				offers := make([]string, len(list))
				for i, v := range list {
					offers[i] = before + v
				}
				return offers, cobra.ShellCompDirectiveNoFileComp
			})
		if err != nil {
			panic(fmt.Sprintf("complete %s: %v", name, err)) // no such flag
		}
	}
}
