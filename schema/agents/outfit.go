package agents

import (
	"fmt"
	"maps"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Variables of an agent's environment that say where its calls are reported: the id of the run, the log, and the schema
// of its lines.
const (
	EnvRun       = "ASSAY_RUNNER_RUN_ID"
	EnvLog       = "ASSAY_RUNNER_SDK_EVENT_LOG"
	EnvLogSchema = "ASSAY_RUNNER_SDK_EVENT_SCHEMA"
)

// EnvSetup names the variable in which a run hands a Setup to "assay-run hook AGENT -- CMD".
const EnvSetup = "ASSAY_RUNNER_AGENT_SETUP"

// Setup is what has to be done in an agent's private home before the agent starts. It is done inside of the sandbox,
// as the command's user: whatever is in the home, nothing outside of the layer can be written.
type Setup struct {
	// Agent is the recipe's name.
	Agent string `json:"agent"`
	// Reader means that the agent's calls are read from its own log.
	Reader bool       `json:"reader,omitzero"`
	Files  []HomeFile `json:"files,omitzero"`
}

// HomeFile is a file of a recipe. Path begins with "~/".
type HomeFile struct {
	Path string `json:"path"`
	File
}

// SetupOf returns what the environment says; nil: nothing.
func SetupOf(env func(string) string) (*Setup, error) {
	text := env(EnvSetup)
	if text == "" {
		return nil, nil
	}
	s := &Setup{}
	if err := json.Unmarshal([]byte(text), s); err != nil {
		return nil, fmt.Errorf("%s: %w", EnvSetup, err)
	}
	return s, nil
}

// Outfit is what an agent's recipe sets for one command.
type Outfit struct {
	Recipe *Recipe
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
	parts := []Part{o.Recipe.Part}
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
			if set[name], err = Expand(text, value); err != nil {
				return Worn{}, err
			}
		}
		maps.Copy(all, set)
		for _, text := range p.Arguments {
			v, err := Expand(text, value)
			if err != nil {
				return Worn{}, err
			}
			w.Arguments = append(w.Arguments, v)
		}
		for _, at := range slices.Sorted(maps.Keys(p.Files)) {
			f := p.Files[at]
			if f.JSON != nil {
				text, err := Expand(string(f.JSON), quoted(value))
				if err != nil {
					return Worn{}, err
				}
				f.JSON = []byte(text)
			}
			setup.Files = append(setup.Files, HomeFile{Path: at, File: f})
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
