package events

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"laneway/internal/store"
)

const (
	// topicHello is the topic with which a replica announces itself.
	topicHello = "hello"
	topicChat  = "chat"
	// listenTime bounds the wait for the events of other replicas at the start.
	listenTime = 5 * time.Second
)

// Topics maps the kinds of cluster events to the functions that handle those of other replicas. A function is called on the goroutine of [Publisher.Run]; a
// slow one delays the others.
type Topics map[string]func(ctx context.Context, text string)

// Peers reports whether other replicas share the store.
type Peers interface {
	HasPeers() bool
	// SawPeer records a sign of another replica.
	SawPeer()
}

// cluster sends cluster events to the other replicas, and handles theirs.
type cluster struct {
	b      store.Broadcaster // nil when no other process can share the store
	peers  Peers
	topics Topics
	missed func() // events of other replicas may have been lost; it does not block
}

// active reports whether another replica exists.
func (c *cluster) active() bool { return c.b != nil && c.peers.HasPeers() }

// send sends an event to the other replicas, if any exist. e points to plain data; shorten shortens it first when it is too long.
func (c *cluster) send(topic string, e any, shorten func()) {
	if !c.active() {
		return
	}
	prefix := topic + " "
	text, err := json.Marshal(e)
	if err == nil && len(prefix)+len(text) > store.MaxBroadcast {
		shorten()
		text, err = json.Marshal(e)
	}
	if err == nil { // plain data can always be encoded
		c.b.Broadcast(prefix + string(text))
	}
}

// listen waits until the events of other replicas reach this process, for listenTime at most.
func (c *cluster) listen(ctx context.Context) error {
	if c.b == nil {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, listenTime, errors.New("listening for the events of other replicas took too long"))
	defer cancel()
	return c.b.Listen(ctx)
}

// announce makes the other replicas send to this one, and this one to them until a heartbeat has counted them.
func (c *cluster) announce() {
	if c.b == nil {
		return
	}
	c.peers.SawPeer()
	c.b.Broadcast(topicHello)
}

// run handles the events of other replicas.
func (c *cluster) run(ctx context.Context) {
	if c.b == nil {
		return
	}
	texts := c.b.Broadcasts()
	for {
		select {
		case <-ctx.Done():
			return
		case text := <-texts:
			if text == "" {
				c.missed()
				continue
			}
			c.peers.SawPeer()
			topic, text, _ := strings.Cut(text, " ")
			if handle := c.topics[topic]; handle != nil {
				handle(ctx, text)
			}
		}
	}
}
