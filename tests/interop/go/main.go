// The mutexes of redsync under the control of another process.
//
// A line on standard input is a command, its words separated by tabs: `number thread command word...`. Each thread is
// a goroutine, made when its name first comes up, and runs its commands one after the other. The answer is a line on
// standard output, `number ok value` or `number failed error message`, in the order in which commands end. All times
// are milliseconds.
//
//	open    client kind url...                     makes a client; kind is redsync
//	close   client
//	lock    client name lease wait                 true, or false if the wait was not enough; 0 tries once
//	unlock  client name
//	extend  client name lease
//	owned   client name                            whether this thread holds the lock, as the library sees it
//	token   client name                            what this thread's hold is known by
//	count   client name lease url counter times    adds to a counter that only the lock protects, by GET and SET, and
//	                                               returns how often another client had added in between
//
// It ends with its standard input, at once and without a word to Redis.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"
	pools "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// The mean time a waiter sleeps before it tries again. Redsync's own 150 ms would make the counting slow.
const retry = 5 * time.Millisecond

// The share of the lease that one attempt may take. Redsync's own 5 % of a short lease is little on a busy machine.
const share = 0.3

// More than any wait of a test.
const patience = 30 * time.Second

// The connections to some servers.
type client struct {
	servers []*redis.Client
	redsync *redsync.Redsync
}

var (
	clients     = map[string]*client{}
	clientsLock sync.Mutex
	outLock     sync.Mutex
)

// A goroutine that runs its commands one after the other.
type worker struct {
	commands chan []string
	held     map[string]*redsync.Mutex
}

func main() {
	say("ready")
	workers := map[string]*worker{}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		words := strings.Split(in.Text(), "\t")
		number, thread := words[0], words[1]
		if workers[thread] == nil {
			workers[thread] = &worker{make(chan []string, 64), map[string]*redsync.Mutex{}}
			go workers[thread].work()
		}
		workers[thread].commands <- append([]string{number}, words[2:]...)
	}
	os.Exit(0)
}

func say(words ...string) {
	outLock.Lock()
	defer outLock.Unlock()
	fmt.Println(strings.Join(words, "\t"))
}

func (w *worker) work() {
	for words := range w.commands {
		value, err := w.run(words[1], words[2:])
		if err != nil {
			say(words[0], "failed", kind(err), strings.Join(strings.Fields(err.Error()), " "))
		} else {
			say(words[0], "ok", fmt.Sprint(value))
		}
	}
}

// The name under which redsync knows an error.
func kind(err error) string {
	var taken *redsync.ErrTaken
	switch {
	case errors.As(err, &taken):
		return "ErrTaken"
	case errors.Is(err, redsync.ErrLockAlreadyExpired):
		return "ErrLockAlreadyExpired"
	case errors.Is(err, redsync.ErrExtendFailed):
		return "ErrExtendFailed"
	case errors.Is(err, redsync.ErrFailed):
		return "ErrFailed"
	default:
		return fmt.Sprintf("%T", err)
	}
}

func (w *worker) run(command string, words []string) (interface{}, error) {
	if command == "open" {
		return open(words[0], words[2:])
	}
	clientsLock.Lock()
	c := clients[words[0]]
	clientsLock.Unlock()
	if c == nil {
		return nil, fmt.Errorf("no client %s", words[0])
	}
	if command == "close" {
		for _, server := range c.servers {
			_ = server.Close()
		}
		return "closed", nil
	}
	key := words[0] + "\t" + words[1]
	switch command {
	case "lock":
		return w.lock(c, key, words[1], millis(words[2]), millis(words[3]))
	case "count":
		return w.count(c, key, words[1:])
	}
	held := w.held[key]
	if held == nil {
		return nil, fmt.Errorf("%s: nothing to %s", words[1], command)
	}
	switch command {
	case "unlock":
		done, err := held.Unlock()
		return told(done, err, "unlocked")
	case "extend":
		// The mutex extends for the lease that it was made with.
		redsync.WithExpiry(millis(words[2])).Apply(held)
		done, err := held.Extend()
		return told(done, err, "true")
	case "owned":
		// The only question redsync has; its error says merely that the answer is no.
		owned, _ := held.Valid()
		return owned, nil
	case "token":
		return held.Value(), nil
	default:
		return nil, fmt.Errorf("no command %s", command)
	}
}

// A minority that fails comes with an error, too, and does not matter.
func told(done bool, err error, value string) (interface{}, error) {
	if done {
		return value, nil
	}
	if err == nil {
		err = errors.New("it returned false")
	}
	return nil, err
}

func open(name string, urls []string) (interface{}, error) {
	c := &client{}
	var all []pools.Pool
	for _, url := range urls {
		options, err := redis.ParseURL(url)
		if err != nil {
			return nil, err
		}
		server := redis.NewClient(options)
		c.servers = append(c.servers, server)
		all = append(all, goredis.NewPool(server))
	}
	c.redsync = redsync.New(all...)
	clientsLock.Lock()
	clients[name] = c
	clientsLock.Unlock()
	return "opened", nil
}

func (w *worker) lock(c *client, key, name string, lease, wait time.Duration) (bool, error) {
	// By the number of attempts, because the end of a context would keep redsync from taking back an attempt.
	tries := 1 + int(wait/retry)
	mutex := c.redsync.NewMutex(name, redsync.WithExpiry(lease), redsync.WithTries(tries),
		redsync.WithTimeoutFactor(share),
		redsync.WithRetryDelayFunc(func(int) time.Duration { return time.Duration(rand.Int63n(int64(2 * retry))) }))
	err := mutex.Lock()
	switch {
	case err == nil:
		w.held[key] = mutex
		return true, nil
	case kind(err) == "ErrTaken", kind(err) == "ErrFailed":
		return false, nil
	default:
		return false, err
	}
}

func (w *worker) count(c *client, key string, words []string) (interface{}, error) {
	name, lease, url, counter := words[0], millis(words[1]), words[2], words[3]
	times, err := strconv.Atoi(words[4])
	if err != nil {
		return nil, err
	}
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	server := redis.NewClient(options)
	defer server.Close()
	background := context.Background()
	own, others := 0, 0
	for i := 0; i < times; i++ {
		got, err := w.lock(c, key, name, lease, patience)
		if err != nil {
			return nil, err
		}
		if !got {
			return nil, errors.New("the lock is not to be had")
		}
		value, err := server.Get(background, counter).Int()
		if err != nil && err != redis.Nil {
			return nil, err
		}
		if value != own {
			others++
		}
		own = value + 1
		if err := server.Set(background, counter, own, 0).Err(); err != nil {
			return nil, err
		}
		if done, err := w.held[key].Unlock(); !done {
			return nil, err
		}
		// Leaves a moment in which another client can acquire.
		time.Sleep(time.Duration(rand.Int63n(int64(2 * time.Millisecond))))
	}
	return others, nil
}

func millis(text string) time.Duration {
	number, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return time.Duration(number) * time.Millisecond
}
