package runner

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"github.com/assay-run/assay-run/runner/agentlog"
	"github.com/assay-run/assay-run/runner/gateway"
)

// EnvToolCall is the environment variable that names the tool call that a process and its descendants work for. The
// kernel layer reads it when a process is executed.
const EnvToolCall = "ASSAY_TOOL_CALL_ID"

// CheckCallID returns why id is not a valid tool call id. A valid id is 1 to 128 bytes of printable UTF-8.
func CheckCallID(id string) error {
	switch {
	case id == "":
		return errors.New("the tool call id is empty")
	case len(id) > agentlog.MaxID:
		return fmt.Errorf("the tool call id is %d bytes long; the maximum is %d", len(id), agentlog.MaxID)
	case !utf8.ValidString(id) || strings.ContainsFunc(id, func(r rune) bool { return !unicode.IsPrint(r) }):
		return fmt.Errorf("the tool call id %q contains unprintable characters", id)
	}
	return nil
}

// Limits of JoinCall. A dead runner's socket refuses at once. A busy machine may need seconds for a hundred calls at
// a time.
const (
	joinTimeout = 10 * time.Second
	joinAgain   = 20 * time.Millisecond // the gateway has no free place for a client
)

const maxJoinMessage = 4096

// JoinCall asks the gateway at socket, the value of [gateway.EnvSocket], to move this process into the cgroup of a
// tool call. After an error the process was not moved, and only [EnvToolCall] names its call.
func JoinCall(socket, id string) error {
	if err := CheckCallID(id); err != nil {
		return err
	}
	deadline := time.Now().Add(joinTimeout)
	for {
		busy, err := joinCall(socket, id, deadline)
		if err == nil || !busy || time.Now().Add(joinAgain).After(deadline) {
			return err
		}
		time.Sleep(joinAgain)
	}
}

func joinCall(socket, id string, deadline time.Time) (busy bool, err error) {
	conn, err := net.DialTimeout("unix", socket, time.Until(deadline))
	if err != nil {
		return errors.Is(err, syscall.EAGAIN), fmt.Errorf("ask the runner: %w", err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(deadline)
	msg, err := json.Marshal(map[string]any{
		"jsonrpc": "2.0", "id": 1, "method": "calls.join", "params": map[string]string{"tool_call_id": id},
	})
	if err != nil {
		return false, err
	}
	_, werr := conn.Write(append(msg, '\n'))
	line, err := bufio.NewReaderSize(conn, maxJoinMessage).ReadSlice('\n')
	if err != nil {
		return true, fmt.Errorf("ask the runner: %w", errors.Join(werr, err))
	}
	var reply struct {
		Error *struct {
			Code    int    `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	if err := json.Unmarshal(line, &reply); err != nil {
		return false, fmt.Errorf("ask the runner: %w", err)
	}
	if reply.Error != nil {
		return reply.Error.Code == gateway.CodeBusy, errors.New(reply.Error.Message)
	}
	return false, nil
}
