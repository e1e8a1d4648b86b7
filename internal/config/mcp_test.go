package config

import (
	"strings"
	"testing"
)

func TestServersOfToolsAreChecked(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ server, fault string }{
		{`files: {command: [files-mcp, --root, /srv], env: {KEY: v}, dir: /srv, tools: [read, write], read_only: [read], timeout: 55s}`, ""},
		{`files: {url: "https://tools.example.org/mcp", token: key, tools: [search]}`, ""},
		{`Files: {command: [x], tools: [read]}`, "mcp.servers.Files is no name of a server"},
		{`files_more: {command: [x], tools: [read]}`, "mcp.servers.files_more is no name of a server"},
		{`a-name-of-17-char: {command: [x], tools: [read]}`, "is no name of a server"},
		{`files: {tools: [read]}`, "mcp.servers.files needs either command or url"},
		{`files: {command: [x], url: "http://127.0.0.1:1", tools: [read]}`, "mcp.servers.files needs either command or url"},
		{`files: {url: "127.0.0.1:1", tools: [read]}`, "mcp.servers.files.url must look like"},
		{`files: {url: "https://a:b@host/mcp", tools: [read]}`, "mcp.servers.files.url must look like"},
		{`files: {command: [x], token: key, tools: [read]}`, "mcp.servers.files.token is for a url"},
		{`files: {command: [x]}`, "mcp.servers.files.tools names no tool"},
		{`files: {command: [x], tools: [read], read_only: [write]}`, `mcp.servers.files.read_only names "write", which is not in tools`},
		{`files: {command: [x], tools: [read], timeout: 56s}`, "mcp.servers.files.timeout must be between 1s and 55s"},
		{`send: {command: [x], tools: [file]}`, `mcp.servers.send.tools names "file": send_file is a tool of the gateway`},
		{`files: {command: [x], tools: [read], colour: red}`, "colour"},
	} {
		name, _, _ := strings.Cut(tt.server, ":")
		_, err := loadText(t, "agents: {main: {runner: openai, model: m, base_url: \"http://127.0.0.1:1/v1\", mcp: ["+name+"]}}\nmcp: {servers: {"+tt.server+"}}\n")
		switch {
		case tt.fault == "" && err != nil:
			t.Errorf("%s: %v", tt.server, err)
		case tt.fault != "" && (err == nil || !strings.Contains(err.Error(), tt.fault)):
			t.Errorf("%s: got %v, want %q", tt.server, err, tt.fault)
		}
	}
}

func TestAnAgentNamesServersThatAreThere(t *testing.T) {
	t.Parallel()
	_, err := loadText(t, "agents: {main: {runner: openai, model: m, base_url: \"http://127.0.0.1:1/v1\", mcp: [mail]}}\n")
	if err == nil || !strings.Contains(err.Error(), `agents.main.mcp names "mail", which is not in mcp.servers`) {
		t.Errorf("got %v", err)
	}
	_, err = loadText(t, "agents: {main: {runner: echo, mcp: [mail]}}\nmcp: {servers: {mail: {command: [x], tools: [read]}}}\n")
	if err == nil || !strings.Contains(err.Error(), "not of echo") {
		t.Errorf("servers of echo: got %v", err)
	}
}
