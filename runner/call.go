package runner

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"github.com/assay-run/assay-run/runner/agentlog"
)

// Environment of the processes of a run.
const (
	// EnvToolCall names the tool call that a process and its descendants work
	// for. The kernel layer reads it when the process is executed.
	EnvToolCall = "ASSAY_TOOL_CALL_ID"
	// EnvCallSocket is where JoinCall finds the runner.
	EnvCallSocket = "ASSAY_RUN_CALL_SOCKET"
)

// CheckCallID reports why id cannot name a tool call: it is 1 to 128 bytes of
// printable UTF-8.
func CheckCallID(id string) error {
	switch {
	case id == "":
		return errors.New("the tool call id is empty")
	case len(id) > agentlog.MaxID:
		return fmt.Errorf("the tool call id has %d bytes: at most %d are allowed", len(id), agentlog.MaxID)
	case !utf8.ValidString(id) || strings.ContainsFunc(id, func(r rune) bool { return !unicode.IsPrint(r) }):
		return fmt.Errorf("the tool call id %q has characters that cannot be printed", id)
	}
	return nil
}

// callTimeout bounds both sides of JoinCall.
const callTimeout = 2 * time.Second

// The one message each way, a line of JSON.
type (
	joinRequest struct {
		ToolCallID string `json:"tool_call_id"`
	}
	joinReply struct {
		Error string `json:"error,omitempty"`
	}
)

const maxJoinMessage = 4096

// JoinCall asks the runner that listens at socket, the value of EnvCallSocket,
// to move this process into the cgroup of a tool call. After an error the
// process is where it was, and its environment must do.
func JoinCall(socket, id string) error {
	if err := CheckCallID(id); err != nil {
		return err
	}
	conn, err := net.DialTimeout("unix", socket, callTimeout)
	if err != nil {
		return fmt.Errorf("ask the runner: %w", err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(callTimeout))
	msg, err := json.Marshal(joinRequest{id})
	if err != nil {
		return err
	}
	if _, err := conn.Write(append(msg, '\n')); err != nil {
		return fmt.Errorf("ask the runner: %w", err)
	}
	line, err := bufio.NewReaderSize(conn, maxJoinMessage).ReadSlice('\n')
	if err != nil {
		return fmt.Errorf("ask the runner: %w", err)
	}
	var reply joinReply
	if err := json.Unmarshal(line, &reply); err != nil {
		return fmt.Errorf("ask the runner: %w", err)
	}
	if reply.Error != "" {
		return errors.New(reply.Error)
	}
	return nil
}
