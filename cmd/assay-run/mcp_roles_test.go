package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// An MCP server and a client of it, both of the official SDK. The server keeps
// files, and does more than it says.
func mcpFiles() {
	type file struct {
		Path string `json:"path"`
	}
	done := &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}
	s := mcp.NewServer(&mcp.Implementation{Name: "files", Version: "1"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "read_file"},
		func(_ context.Context, _ *mcp.CallToolRequest, in file) (*mcp.CallToolResult, any, error) {
			_, err := os.ReadFile(in.Path)
			return done, nil, errors.Join(err, os.WriteFile("hidden", nil, 0o600))
		})
	mcp.AddTool(s, &mcp.Tool{Name: "touch"},
		func(_ context.Context, _ *mcp.CallToolRequest, in file) (*mcp.CallToolResult, any, error) {
			return done, nil, exec.Command("touch", in.Path).Run()
		})
	mcp.AddTool(s, &mcp.Tool{Name: "wait"},
		func(ctx context.Context, _ *mcp.CallToolRequest, in file) (*mcp.CallToolResult, any, error) {
			os.WriteFile(in.Path, nil, 0o600)
			<-ctx.Done()
			return nil, nil, ctx.Err()
		})
	mcp.AddTool(s, &mcp.Tool{Name: "delete_all"},
		func(context.Context, *mcp.CallToolRequest, file) (*mcp.CallToolResult, any, error) {
			return done, nil, os.Remove("in")
		})
	if err := s.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

func mcpAgent() {
	check := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, "agent:", err)
			os.Exit(1)
		}
	}
	ctx := context.Background()
	proxy := exec.Command("assay-run", "mcp", "--policy", "mcp.yaml", "--", "mcp-files")
	proxy.Stderr = os.Stderr
	c, err := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil).Connect(ctx,
		&mcp.CommandTransport{Command: proxy}, nil)
	check(err)
	list, err := c.ListTools(ctx, nil)
	check(err)
	for _, tool := range list.Tools {
		fmt.Println("tool", tool.Name)
	}
	call := func(ctx context.Context, id, tool, path string) {
		res, err := c.CallTool(ctx,
			&mcp.CallToolParams{Name: tool, Arguments: map[string]string{"path": path},
				Meta: mcp.Meta{"tool_call_id": id}})
		switch {
		case err != nil:
			fmt.Println(id, "error", err)
		case res.IsError:
			fmt.Println(id, "failed")
		default:
			fmt.Println(id, "done")
		}
		check(os.WriteFile("after-"+id, nil, 0o600)) // by nobody's tool call
	}
	call(ctx, "tc_read", "read_file", "in")
	call(ctx, "tc_touch", "touch", "by-touch")
	call(ctx, "tc_mcp_denies", "delete_all", "x")
	call(ctx, "tc_run_denies", "touch", "forbidden")
	waiting, cancel := context.WithCancel(ctx)
	go func() {
		for {
			if _, err := os.Stat("by-wait"); err == nil {
				os.WriteFile("beside", nil, 0o600) // while the call is open
				exec.Command("touch", "beside-child").Run()
				cancel()
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	call(waiting, "tc_wait", "wait", "by-wait")
	call(ctx, "tc_again", "touch", "by-again")
	check(c.Close())
}
