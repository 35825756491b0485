package hook

import (
	"maps"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/schema/agents"
)

// Outfit is what an agent's recipe sets for one command.
type Outfit struct {
	Recipe *agents.Recipe
	// Routes are the providers behind the model gateway.
	Routes []string
	// Private means that the recipe's files can be written to the command's home.
	Private bool
}

// Worn is what an Outfit means for a command.
type Worn struct {
	// Env are variables, as NAME=VALUE. They replace those of the command.
	Env []string
	// Arguments follow the word of the command that is the agent's program.
	Arguments []string
	// Setup is the value of EnvSetup for "assay-run hook AGENT --", which must start the command. It is empty if
	// nothing needs to be set up.
	Setup string
}

// Wear returns what the outfit sets for a command that has these variables.
func (o Outfit) Wear(variable func(name string) (string, bool)) (w Worn, err error) {
	parts := []agents.Part{o.Recipe.Part}
	for _, route := range o.Routes {
		parts = append(parts, o.Recipe.Routes[route])
	}
	all := map[string]string{}
	value := func(name string) (string, bool) {
		if v, set := all[name]; set {
			return v, true
		}
		return variable(name)
	}
	setup := Setup{Agent: o.Recipe.Name, Reader: o.Recipe.Reader}
	for _, p := range parts {
		if len(p.Files) > 0 && !o.Private {
			continue
		}
		set := map[string]string{}
		for name, text := range p.Env {
			if set[name], err = agents.Expand(text, value); err != nil {
				return Worn{}, err
			}
		}
		maps.Copy(all, set)
		for _, text := range p.Arguments {
			v, err := agents.Expand(text, value)
			if err != nil {
				return Worn{}, err
			}
			w.Arguments = append(w.Arguments, v)
		}
		for _, at := range slices.Sorted(maps.Keys(p.Files)) {
			f := p.Files[at]
			if f.JSON != nil {
				text, err := agents.Expand(string(f.JSON), quoted(value))
				if err != nil {
					return Worn{}, err
				}
				f.JSON = []byte(text)
			}
			setup.Files = append(setup.Files, File{Path: at, File: f})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		w.Env = append(w.Env, name+"="+all[name])
	}
	if len(setup.Files) > 0 || setup.Reader {
		text, err := json.Marshal(setup)
		if err != nil {
			return Worn{}, err
		}
		w.Setup = string(text)
	}
	return w, nil
}

// quoted returns value for use in a string of JSON.
func quoted(value func(string) (string, bool)) func(string) (string, bool) {
	return func(name string) (string, bool) {
		v, ok := value(name)
		text, _ := jsontext.AppendQuote(nil, v) // it replaces what is not UTF-8
		return string(text[1 : len(text)-1]), ok
	}
}
