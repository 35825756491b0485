package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/assay-run/assay-run/archive/render"
	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/schema"
)

// exitStopped is the exit code of a replay that the user stopped, as after SIGINT.
const exitStopped = 130

func replayCommand(a *app) *cobra.Command {
	var unverified bool
	speed, pause := 1.0, 0.0
	cmd := &cobra.Command{
		Use:   "replay [flags] BUNDLE",
		Short: "Play the recording of a run's terminal",
		Long: `replay plays what the command drew on its terminal, with the pauses that it made. A run
has a recording if it was started on a terminal.

Keys: space pauses and resumes, "." plays the next step of a paused recording, and q or
Ctrl-C stops.

replay plays text, colours and cursor movements. It leaves out what would make this
terminal answer, or change its title or the clipboard.`,
		Example: `  assay-run replay run.tar.gz
  assay-run replay --speed 4 --idle-time-limit 1 run.tar.gz`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return a.usage(cmd, fmt.Errorf("replay takes one bundle, got %d", len(args)))
			}
			if !(speed > 0) || speed > 1e6 {
				return a.usage(cmd, fmt.Errorf("--speed %v: must be more than 0 and at most 1000000", speed))
			}
			if !(pause >= 0) || pause > 1e6 {
				return a.usage(cmd, fmt.Errorf("--idle-time-limit %v: must be 0 to 1000000 seconds", pause))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			set, err := a.open(cmd.Context(), args, !unverified, schema.SurfacePath)
			if err != nil {
				return err
			}
			defer set.Close()
			return playRecording(cmd.Context(), a, set.Bundles[0],
				render.Playback{Speed: speed, MaxPause: time.Duration(pause * float64(time.Second))})
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVar(&unverified, "unverified", false, "also play a bundle that does not verify")
	fs.Float64VarP(&speed, "speed", "s", speed, "play `N` times as fast")
	fs.Float64VarP(&pause, "idle-time-limit", "i", pause, "shorten pauses to `SECONDS`; 0 shortens none")
	return cmd
}

// playRecording plays the recording of b.
func playRecording(ctx context.Context, a *app, b *view.Bundle, o render.Playback) error {
	for it, err := range b.Items(ctx, schema.TerminalPath) {
		if err != nil {
			return fmt.Errorf("%s: %w", b.Name, err)
		}
		o.Size = sizeWarner(a)
		keys, restore := listenToKeys(a)
		o.Wait = keys.wait
		exit, err := render.Play(ctx, a.stdout, it.Member, o)
		restore()
		switch {
		case errors.Is(err, errStopped), errors.Is(err, context.Canceled):
			return console.ExitError{Code: exitStopped}
		case err != nil:
			return fmt.Errorf("%s: %s: %w", b.Name, it.Path, err)
		}
		if s := b.Docs.Result.Stdio.Terminal; s != nil && s.Truncated {
			a.say.Warning("the recording ends before the run did: it has %d of %d bytes", s.Captured, s.Bytes)
		}
		if exit != "" {
			a.say.Info("the recorded command exited with %s", exit)
		}
		return nil
	}
	return console.WithHint(fmt.Errorf("%s has no recording of a terminal", b.Name),
		"a run has one if it was started on a terminal; assay-run show prints what the command wrote")
}

// sizeWarner warns once, if this terminal is smaller than the recorded one.
func sizeWarner(a *app) func(cols, rows int) {
	warned := false
	return func(cols, rows int) {
		width, height, err := term.GetSize(int(a.stdout.Fd()))
		if err != nil || warned || cols <= width && rows <= height {
			return
		}
		warned = true
		a.say.Warning("the recorded terminal has %d columns and %d rows, this one %d and %d: lines may "+
			"break in other places", cols, rows, width, height)
	}
}

var errStopped = errors.New("stopped")

// keys are those that the user presses meanwhile; nil where there is no keyboard.
type keys struct {
	pressed <-chan byte
	paused  bool
}

// listenToKeys listens to the keyboard until restore is called.
func listenToKeys(a *app) (k *keys, restore func()) {
	k = &keys{}
	fd := int(a.stdin.Fd())
	if !console.Terminal(a.stdin) || !console.Terminal(a.stdout) {
		return k, func() {}
	}
	before, err := term.MakeRaw(fd)
	if err != nil {
		return k, func() {}
	}
	pressed := make(chan byte)
	k.pressed = pressed
	go func() { // until the program ends
		var b [1]byte
		for {
			if n, err := a.stdin.Read(b[:]); n != 1 || err != nil {
				return
			}
			pressed <- b[0]
		}
	}()
	return k, func() { term.Restore(fd, before) }
}

// wait waits for a pause of the recording and does meanwhile what the keys say.
func (k *keys) wait(ctx context.Context, pause time.Duration) error {
	until := time.Now().Add(pause)
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		ends := timer.C
		if k.paused {
			ends = nil
		}
		select {
		case <-ends:
			return ctx.Err()
		case <-ctx.Done():
			return ctx.Err()
		case key := <-k.pressed:
			switch {
			case key == 'q' || key == 3:
				return errStopped
			case key == '.' && k.paused:
				return nil
			case key == ' ' && k.paused:
				k.paused, until = false, time.Now().Add(pause)
				timer.Reset(pause)
			case key == ' ':
				k.paused, pause = true, time.Until(until)
			}
		}
	}
}
