package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"html"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"laneway/internal/app"
	"laneway/internal/config"
	program "laneway/internal/process"
	"laneway/internal/secret"
)

const (
	// dashboardToken is the prefix of the names of tokens of this command.
	dashboardToken = "dashboard-"
	maxDashboard   = 7 * 24 * time.Hour
	// dashboardPage is how long the page that forwards to the link exists.
	dashboardPage = time.Minute
)

type dashboardCmd struct {
	configFlags
	Read  bool          `help:"The token may only read."`
	For   time.Duration `help:"Lifetime of the token, 1m to 168h." default:"12h" placeholder:"DURATION"`
	Print bool          `help:"Print the link instead of opening it, for example for another machine."`
	URL   string        `name:"url" help:"Address of the gateway for the browser, such as https://gateway.example/laneway; default this host." placeholder:"URL"`
}

// Run makes the token and opens the page.
func (c *dashboardCmd) Run(ctx context.Context, env *environment) error {
	if c.For < time.Minute || c.For > maxDashboard {
		return usageError("--for must be from 1m to 168h")
	}
	loaded, err := c.loadBeside(env)
	if err != nil {
		return err
	}
	socket, base, err := c.addresses(env, loaded.Config)
	if err != nil {
		return err
	}
	if !loaded.Config.Dashboard {
		return errors.New("the dashboard is switched off; set dashboard: true")
	}
	made, token, err := c.token(ctx, env, loaded.Config, socket)
	if err != nil {
		return err
	}
	link := base + "/dashboard/#token=" + token.Reveal()
	words := fmt.Sprintf("token %s may %s for %s", made.Name, scopeWords(made.Scopes), short(c.For))
	if c.Print {
		env.note(words + "; the link is a credential")
		return env.printLine(link)
	}
	if err := c.open(ctx, env, loaded.Config.Data, link, words); err != nil {
		return errors.Join(err, app.RevokeToken(context.WithoutCancel(ctx), loaded.Config, made.Name, here()))
	}
	return nil
}

// addresses returns the address of the gateway's socket (LANEWAY_URL or the listener on this host),
// and that of the gateway for a browser, without a trailing slash.
func (c *dashboardCmd) addresses(env *environment, cfg config.Config) (socket, base string, err error) {
	socket = "ws://" + localAddress(cfg.Listen)
	if named, _ := env.lookupEnv("LANEWAY_URL"); named != "" {
		if socket, err = socketAddress(named); err != nil {
			return "", "", err
		}
	}
	if c.URL == "" {
		return socket, "http" + strings.TrimPrefix(strings.TrimSuffix(strings.TrimSuffix(socket, "/ws"), "/"), "ws"), nil
	}
	address := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(c.URL, "/"), "/dashboard"), "/")
	if !strings.HasPrefix(address, "https://") && !strings.HasPrefix(address, "http://") {
		return "", "", usageError("--url must begin with https:// or http://")
	}
	return socket, address, nil
}

// token makes the token, and removes expired ones of this command. The gateway must accept it,
// because a page without a gateway would only report that.
func (c *dashboardCmd) token(ctx context.Context, env *environment, cfg config.Config, socket string) (made app.Token, token secret.Secret, err error) {
	list, err := app.ListTokens(ctx, cfg)
	if err != nil {
		return made, token, fmt.Errorf("reading the tokens: %w", err)
	}
	for _, t := range list {
		if strings.HasPrefix(t.Name, dashboardToken) && !t.ExpiresAt.IsZero() && !env.now().Before(t.ExpiresAt) {
			if err := app.RevokeToken(ctx, cfg, t.Name, here()); err != nil {
				return made, token, fmt.Errorf("removing the expired token %s: %w", t.Name, err)
			}
		}
	}
	scope := map[bool]string{true: "read", false: "admin"}[c.Read]
	request := app.TokenRequest{Name: dashboardToken + env.now().UTC().Format("20060102-150405.000"), Scopes: []string{scope}, ExpiresIn: c.For}
	made, token, err = app.CreateToken(ctx, cfg, request, here())
	if err != nil {
		return made, token, fmt.Errorf("making the token: %w", err)
	}
	conn, err := env.dial(ctx, target{URL: socket, Token: token})
	if err != nil {
		return made, token, errors.Join(err, app.RevokeToken(context.WithoutCancel(ctx), cfg, made.Name, here()))
	}
	closeQuietly(conn)
	return made, token, nil
}

// open shows the link in a browser and returns when the page that forwards to it has been removed.
func (c *dashboardCmd) open(ctx context.Context, env *environment, dir, link, words string) error {
	f, err := os.CreateTemp(dir, "dashboard-*.html") // mode 0600
	if err != nil {
		return fmt.Errorf("writing the page that forwards to the link: %w", err)
	}
	defer os.Remove(f.Name())
	_, err = fmt.Fprintf(f, "<!doctype html><meta charset=utf-8><meta name=referrer content=no-referrer><title>laneway</title><meta http-equiv=refresh content=\"0; url=%s\">\n", html.EscapeString(link))
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("writing the page that forwards to the link: %w", err)
	}
	exited, err := browse(env, "file://"+f.Name())
	if err != nil {
		return fmt.Errorf("no browser could be opened here (%w); laneway dashboard --print prints a link to open elsewhere", err)
	}
	env.note(words + "; the browser opens the page, and this command ends within a minute, or with Ctrl-C")
	left := time.NewTimer(dashboardPage)
	defer left.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-left.C:
			return nil
		case err, open := <-exited:
			if err != nil {
				return fmt.Errorf("no browser could be opened here (%w); laneway dashboard --print prints a link to open elsewhere", err)
			}
			if !open {
				exited = nil // an opener ends at once, before the browser has read the page
			}
		}
	}
}

// browse opens an address in the browser of BROWSER, or that of the desktop. The browser does not
// receive the settings of the gateway, which may be secrets.
func browse(env *environment, address string) (<-chan error, error) {
	opener := []string{"xdg-open"}
	switch chosen, _ := env.lookupEnv("BROWSER"); {
	case chosen != "":
		opener = []string{chosen}
	case runtime.GOOS == "darwin":
		opener = []string{"open"}
	case runtime.GOOS == "windows":
		opener = []string{"rundll32", "url.dll,FileProtocolHandler"}
	}
	path, _ := env.lookupEnv("PATH")
	passed := slices.DeleteFunc(env.environ(), func(v string) bool { return strings.HasPrefix(v, "LANEWAY_") })
	return program.Detach(append(opener, address), passed, cmp.Or(path, "/usr/bin:/bin"))
}
