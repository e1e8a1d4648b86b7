package config

import (
	"net/url"
	"regexp"
	"slices"

	"laneway/internal/secret"
)

// MCP are the MCP servers whose tools agents may call. An agent lists the servers that it uses.
type MCP struct {
	// Servers by name. The name is the prefix of the names of their tools: files_read.
	Servers map[string]MCPServer `yaml:"servers"`
}

// MCPServer is one server: a program or an address.
type MCPServer struct {
	// Command is the program and its arguments. It communicates over standard input and output.
	Command []string `yaml:"command"`
	// Env are additional variables of the program, Dir its working directory. Default of Dir: the directory of the gateway.
	Env map[string]string `yaml:"env"`
	Dir string            `yaml:"dir"`
	// URL of a server with the Streamable HTTP transport, instead of Command.
	URL string `yaml:"url"`
	// Token is sent to the URL as a bearer token. TokenEnv or TokenFile name a variable or file that has it.
	Token     secret.Secret `yaml:"token"`
	TokenEnv  string        `yaml:"token_env"`
	TokenFile string        `yaml:"token_file"`
	// Tools that agents may call, by the server's names. Other tools are not offered.
	Tools []string `yaml:"tools"`
	// ReadOnly are those of them that neither create nor send. All others require the person's confirmation in the same turns as the
	// gateway's own tools, and are refused in turns of jobs.
	ReadOnly []string `yaml:"read_only"`
	// Timeout of one call, 1s to 55s. Default 30s.
	Timeout Duration `yaml:"timeout"`
}

// serverName is shorter than other names, because it is part of the names of tools, whose length models limit.
const serverName = `^[a-z0-9][a-z0-9-]{0,15}$`

func (c Config) checkMCP(root at) {
	for _, name := range sortedNames(c.MCP.Servers) {
		c.MCP.Servers[name].check(root.key("mcp").key("servers").key(name), name)
	}
	for _, id := range sortedNames(c.Agents) {
		for _, name := range c.Agents[id].MCP {
			if _, known := c.MCP.Servers[name]; !known {
				root.key("agents").key(id).key("mcp").addf("names %q, which is not in mcp.servers", name)
			}
		}
	}
}

func (s MCPServer) check(at at, name string) {
	if fits, err := regexp.MatchString(serverName, name); err != nil || !fits {
		at.addf("is no name of a server; use lower-case letters, digits and dashes, at most 16")
	}
	switch {
	case (len(s.Command) > 0) == (s.URL != ""):
		at.addf("needs either command or url")
	case s.URL != "":
		if u, err := url.Parse(s.URL); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil {
			at.key("url").addf("must look like https://host/path")
		}
	case s.Token.IsSet():
		at.key("token").addf("is for a url; give the program its secrets in env")
	}
	if len(s.Tools) == 0 {
		at.key("tools").addf("names no tool; list those that agents may call")
	}
	for _, one := range s.Tools {
		if full := name + "_" + one; slices.Contains(toolNames(), full) {
			at.key("tools").addf("names %q: %s is a tool of the gateway; use another name for the server", one, full)
		}
	}
	for _, one := range s.ReadOnly {
		if !slices.Contains(s.Tools, one) {
			at.key("read_only").addf("names %q, which is not in tools", one)
		}
	}
	if s.Timeout != 0 {
		at.durationBetween("timeout", s.Timeout, Duration(second), 55*Duration(second))
	}
}
