package app

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"laneway/internal/channel/telegram"
	"laneway/internal/config"
	"laneway/internal/secret"
)

func TestBotsAreExaminedWithoutChangingAnything(t *testing.T) {
	t.Parallel()
	const good, hook = "1234:good-token-of-a-bot", "https://gw.example/telegram/webhook/default"
	set, problem := "", ""
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, method, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/bot"), "/")
		switch {
		case token != good:
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"ok":false,"error_code":401,"description":"Unauthorized"}`)
		case method == "getMe":
			_, _ = io.WriteString(w, `{"ok":true,"result":{"id":1234,"is_bot":true,"first_name":"L","username":"lane_bot"}}`)
		case method == "getWebhookInfo":
			_, _ = fmt.Fprintf(w, `{"ok":true,"result":{"url":%q,"pending_update_count":0,"last_error_message":%q}}`, set, problem)
		default:
			t.Errorf("Telegram was asked for %s", method)
		}
	}))
	t.Cleanup(api.Close)
	for _, tc := range []struct {
		name, token, url, mode, api string
		set, problem                string
		want                        Weight
		says                        string
	}{
		{name: "polled", token: good, mode: "polling", want: Fine, says: "@lane_bot is known to Telegram and polled"},
		{name: "refused", token: "1234:another-token", mode: "polling", want: Failure, says: "refuses the token"},
		{name: "away", token: good, mode: "polling", api: "http://127.0.0.1:1", want: Warning, says: "Telegram cannot be asked"},
		{name: "delivered", token: good, mode: "webhook", url: hook, set: hook, want: Fine, says: "delivers for @lane_bot to webhook_url"},
		{name: "not set", token: good, mode: "webhook", url: hook, want: Warning, says: "no webhook yet"},
		{name: "elsewhere", token: good, mode: "webhook", url: hook, set: "https://other.example/x", want: Warning, says: "another address than webhook_url"},
		{name: "not reached", token: good, mode: "webhook", url: hook, set: hook, problem: "Connection timed out", want: Warning, says: "could not deliver for @lane_bot: Connection timed out"},
	} {
		set, problem = tc.set, tc.problem
		if tc.api == "" {
			tc.api = api.URL
		}
		cfg := config.Config{}
		cfg.Channels.Telegram = config.Telegram{Enabled: true, Account: "default", Token: secret.New(tc.token), APIURL: tc.api, Mode: tc.mode, WebhookURL: tc.url}
		found := ExamineChannels(t.Context(), cfg)
		if len(found) != 1 || found[0].Weight != tc.want || !strings.Contains(found[0].Text, "telegram default: ") || !strings.Contains(found[0].Text, tc.says) ||
			(tc.want != Fine) != (found[0].Cure != "") || strings.Contains(fmt.Sprint(found), tc.token) {
			t.Errorf("%s: %+v", tc.name, found)
		}
	}
	plain := config.Telegram{APIURL: telegram.DefaultAPIURL, Mode: "webhook", WebhookURL: "http://gw.example/t"}
	if f := examineBot(plain, telegram.Standing{Name: "lane_bot"}); f.Weight != Failure || !strings.Contains(f.Text, "https only") {
		t.Errorf("a webhook without TLS: %+v", f)
	}
}
