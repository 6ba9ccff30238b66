// Apache's Go client as a program that is told what to do, a JSON line each way; see line_client.py.
//
//	{"op":"send","topic":"orders","body":"one"}  ->  {"result":{"message_id":"...","queue_id":0,...}}
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type request struct {
	Op         string            `json:"op"`
	Topic      string            `json:"topic"`
	Group      string            `json:"group"`
	Body       string            `json:"body"`
	Bodies     []string          `json:"bodies"`
	Tags       string            `json:"tags"`
	SQL        string            `json:"sql"`
	Keys       []string          `json:"keys"`
	Key        string            `json:"key"`
	Properties map[string]string `json:"properties"`
	DelayLevel int               `json:"delay_level"`
	Mode       string            `json:"mode"`
	State      string            `json:"state"`
	Orderly    bool              `json:"orderly"`
	Broadcast  bool              `json:"broadcast"`
	FailTimes  int32             `json:"fail_times"`
	Hopeless   bool              `json:"hopeless"`
	Replies    bool              `json:"replies"`
	Count      int               `json:"count"`
	Timeout    float64           `json:"timeout"`
	Address    string            `json:"address"`
}

type fields = map[string]any

var nameServers = []string{os.Args[1]}

// The account, which signs nothing if it is empty.
var account = func() primitive.Credentials {
	if len(os.Args) < 4 {
		return primitive.Credentials{}
	}
	return primitive.Credentials{AccessKey: os.Args[2], SecretKey: os.Args[3]}
}()

func main() {
	rlog.SetLogLevel("error")
	out := os.Stdout
	os.Stdout = os.Stderr // the client prints some of its messages there
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16*1024*1024)
	for lines.Scan() {
		var asked request
		var result any
		err := json.Unmarshal(lines.Bytes(), &asked)
		if err == nil {
			if do, known := ops[asked.Op]; known {
				result, err = do(asked)
			} else {
				err = fmt.Errorf("no op %q", asked.Op)
			}
		}
		answer := fields{"result": result}
		if err != nil {
			answer = fields{"error": err.Error()}
		}
		text, _ := json.Marshal(answer)
		fmt.Fprintf(out, "%s\n", text)
	}
}

var ops = map[string]func(request) (any, error){
	"send":         send,
	"send_batch":   sendBatch,
	"send_ordered": sendOrdered,
	"transaction":  transaction,
	"push_start":   pushStart,
	"push_take":    pushTake,
	"push_stop":    pushStop,
	"pull":         pull,
	"request":      ask,
	"create_topic": createTopic,
	"delete_topic": deleteTopic,
	"topics":       topics,
}

// ---------------------------------------------------------------- sending

var plainProducer = sync.OnceValues(func() (rocketmq.Producer, error) {
	made, err := rocketmq.NewProducer(
		producer.WithNameServer(nameServers), producer.WithCredentials(account), producer.WithGroupName("go-producer"), producer.WithRetry(2))
	if err == nil {
		err = made.Start()
	}
	return made, err
})

// One more, for the choice of a queue belongs to a producer and not to a send.
var orderedProducer = sync.OnceValues(func() (rocketmq.Producer, error) {
	made, err := rocketmq.NewProducer(
		producer.WithNameServer(nameServers), producer.WithCredentials(account), producer.WithGroupName("go-ordered"),
		producer.WithInstanceName("ordered"), producer.WithQueueSelector(producer.NewHashQueueSelector()))
	if err == nil {
		err = made.Start()
	}
	return made, err
})

func message(asked request, body string) *primitive.Message {
	made := primitive.NewMessage(asked.Topic, []byte(body))
	if asked.Tags != "" {
		made.WithTag(asked.Tags)
	}
	if len(asked.Keys) > 0 {
		made.WithKeys(asked.Keys)
	}
	if asked.DelayLevel > 0 {
		made.WithDelayTimeLevel(asked.DelayLevel)
	}
	for name, value := range asked.Properties {
		made.WithProperty(name, value)
	}
	return made
}

func sent(result *primitive.SendResult) fields {
	return fields{
		"status": int(result.Status), "message_id": result.MsgID, "offset_id": result.OffsetMsgID,
		"queue_id": result.MessageQueue.QueueId, "queue_offset": result.QueueOffset,
	}
}

func send(asked request) (any, error) {
	by, err := plainProducer()
	if err != nil {
		return nil, err
	}
	of := message(asked, asked.Body)
	switch asked.Mode {
	case "oneway":
		return nil, by.SendOneWay(context.Background(), of)
	case "async":
		type outcome struct {
			result *primitive.SendResult
			err    error
		}
		answers := make(chan outcome, 1)
		err = by.SendAsync(context.Background(), func(_ context.Context, r *primitive.SendResult, e error) {
			answers <- outcome{r, e}
		}, of)
		if err != nil {
			return nil, err
		}
		answer := <-answers
		if answer.err != nil {
			return nil, answer.err
		}
		return sent(answer.result), nil
	default:
		result, err := by.SendSync(context.Background(), of)
		if err != nil {
			return nil, err
		}
		return sent(result), nil
	}
}

func sendBatch(asked request) (any, error) {
	by, err := plainProducer()
	if err != nil {
		return nil, err
	}
	var many []*primitive.Message
	for _, body := range asked.Bodies {
		many = append(many, message(asked, body))
	}
	result, err := by.SendSync(context.Background(), many...)
	if err != nil {
		return nil, err
	}
	return sent(result), nil
}

func sendOrdered(asked request) (any, error) {
	by, err := orderedProducer()
	if err != nil {
		return nil, err
	}
	var results []fields
	for _, body := range asked.Bodies {
		of := message(asked, body)
		of.WithShardingKey(asked.Key)
		result, err := by.SendSync(context.Background(), of)
		if err != nil {
			return nil, err
		}
		results = append(results, sent(result))
	}
	return results, nil
}

// Sends a message and waits for its reply; the body of that.
func ask(asked request) (any, error) {
	by, err := plainProducer()
	if err != nil {
		return nil, err
	}
	reply, err := by.Request(context.Background(), seconds(asked.Timeout), message(asked, asked.Body))
	if err != nil {
		return nil, err
	}
	return string(reply.Body), nil
}

func reply(to *primitive.MessageExt) error {
	by, err := plainProducer()
	if err != nil {
		return err
	}
	answer, err := consumer.CreateReplyMessage(to, nil) // it would take the body for properties
	if err != nil {
		return err
	}
	answer.Body = []byte("re: " + string(to.Body))
	_, err = by.SendSync(context.Background(), answer)
	return err
}

// ---------------------------------------------------------------- transactions

type listener struct{ checked chan string }

var states = map[string]primitive.LocalTransactionState{
	"commit": primitive.CommitMessageState, "rollback": primitive.RollbackMessageState, "unknown": primitive.UnknowState,
}

func (*listener) ExecuteLocalTransaction(m *primitive.Message) primitive.LocalTransactionState {
	return states[m.GetProperty("state")]
}

func (l *listener) CheckLocalTransaction(m *primitive.MessageExt) primitive.LocalTransactionState {
	l.checked <- string(m.Body)
	return primitive.CommitMessageState
}

var deciding = &listener{make(chan string, 100)}

var transactionProducer = sync.OnceValues(func() (rocketmq.TransactionProducer, error) {
	made, err := rocketmq.NewTransactionProducer(deciding,
		producer.WithNameServer(nameServers), producer.WithCredentials(account), producer.WithGroupName("go-transactions"),
		producer.WithInstanceName("transactions"))
	if err == nil {
		err = made.Start()
	}
	return made, err
})

// Sends a half message and decides it; with a timeout waits until the broker asked about it.
func transaction(asked request) (any, error) {
	by, err := transactionProducer()
	if err != nil {
		return nil, err
	}
	of := message(asked, asked.Body)
	of.WithProperty("state", asked.State)
	if _, err = by.SendMessageInTransaction(context.Background(), of); err != nil {
		return nil, err
	}
	if asked.Timeout == 0 {
		return nil, nil
	}
	select {
	case body := <-deciding.checked:
		return body, nil
	case <-time.After(seconds(asked.Timeout)):
		return nil, fmt.Errorf("no broker asked within %g s", asked.Timeout)
	}
}

// ---------------------------------------------------------------- receiving

type receiving struct {
	consumer rocketmq.PushConsumer
	messages chan fields
}

var receivers = map[string]*receiving{}

func pushStart(asked request) (any, error) {
	model := consumer.Clustering
	if asked.Broadcast {
		model = consumer.BroadCasting
	}
	options := []consumer.Option{
		consumer.WithNameServer(nameServers), consumer.WithCredentials(account), consumer.WithGroupName(asked.Group),
		consumer.WithInstance(asked.Group), consumer.WithConsumerModel(model),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumerOrder(asked.Orderly), consumer.WithConsumeMessageBatchMaxSize(1),
	}
	if asked.Hopeless { // a dead letter when it has failed twice
		options = append(options, consumer.WithMaxReconsumeTimes(1))
	}
	made, err := rocketmq.NewPushConsumer(options...)
	if err != nil {
		return nil, err
	}
	chosen := consumer.MessageSelector{}
	if asked.Tags != "" {
		chosen = consumer.MessageSelector{Type: consumer.TAG, Expression: asked.Tags}
	}
	if asked.SQL != "" {
		chosen = consumer.MessageSelector{Type: consumer.SQL92, Expression: asked.SQL}
	}
	here := &receiving{made, make(chan fields, 10_000)}
	err = made.Subscribe(asked.Topic, chosen,
		func(_ context.Context, many ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			for _, m := range many {
				here.messages <- fields{
					"body": string(m.Body), "tags": m.GetTags(), "keys": m.GetKeys(), "topic": m.Topic,
					"queue_id": m.Queue.QueueId, "queue_offset": m.QueueOffset, "message_id": m.MsgId,
					"reconsume_times": m.ReconsumeTimes, "properties": m.GetProperties(),
				}
				if m.ReconsumeTimes < asked.FailTimes {
					return consumer.ConsumeRetryLater, nil
				}
				if asked.Replies && m.GetProperty(primitive.PropertyMessageReplyToClient) != "" {
					if err := reply(m); err != nil {
						return consumer.ConsumeRetryLater, err
					}
				}
			}
			return consumer.ConsumeSuccess, nil
		})
	if err != nil {
		return nil, err
	}
	receivers[asked.Group] = here
	return nil, made.Start()
}

// Up to `count` messages, as many as come within `timeout`.
func pushTake(asked request) (any, error) {
	here, known := receivers[asked.Group]
	if !known {
		return nil, fmt.Errorf("no consumer of %q", asked.Group)
	}
	taken := []fields{}
	over := time.After(seconds(asked.Timeout))
	for len(taken) < asked.Count {
		select {
		case one := <-here.messages:
			taken = append(taken, one)
		case <-over:
			return taken, nil
		}
	}
	return taken, nil
}

func pushStop(asked request) (any, error) {
	here, known := receivers[asked.Group]
	if !known {
		return nil, fmt.Errorf("no consumer of %q", asked.Group)
	}
	delete(receivers, asked.Group)
	return nil, here.consumer.Shutdown()
}

// Everything that a group of pullers with one member gets: up to `count` messages within `timeout`; committed at the end.
func pull(asked request) (any, error) {
	made, err := rocketmq.NewPullConsumer(
		consumer.WithNameServer(nameServers), consumer.WithCredentials(account), consumer.WithGroupName(asked.Group), consumer.WithInstance(asked.Group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	if err != nil {
		return nil, err
	}
	chosen := consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}
	if asked.Tags != "" {
		chosen.Expression = asked.Tags
	}
	if err = made.Subscribe(asked.Topic, chosen); err != nil {
		return nil, err
	}
	if err = made.Start(); err != nil {
		return nil, err
	}
	taken := []fields{}
	over := time.Now().Add(seconds(asked.Timeout))
	for len(taken) < asked.Count && time.Now().Before(over) {
		polled, err := made.Poll(context.Background(), time.Second)
		if err != nil {
			continue // nothing new within the second
		}
		for _, m := range polled.GetMsgList() {
			taken = append(taken, fields{
				"body": string(m.Body), "queue_id": m.Queue.QueueId, "queue_offset": m.QueueOffset,
			})
		}
		made.ACK(context.Background(), polled, consumer.ConsumeSuccess)
	}
	return taken, made.Shutdown()
}

// ---------------------------------------------------------------- administration

var administrator = sync.OnceValues(func() (admin.Admin, error) {
	return admin.NewAdmin(
		admin.WithResolver(primitive.NewPassthroughResolver(nameServers)), admin.WithCredentials(account))
})

func createTopic(asked request) (any, error) {
	by, err := administrator()
	if err != nil {
		return nil, err
	}
	return nil, by.CreateTopic(context.Background(),
		admin.WithTopicCreate(asked.Topic), admin.WithBrokerAddrCreate(asked.Address),
		admin.WithReadQueueNums(2), admin.WithWriteQueueNums(2))
}

func deleteTopic(asked request) (any, error) {
	by, err := administrator()
	if err != nil {
		return nil, err
	}
	return nil, by.DeleteTopic(context.Background(), admin.WithTopicDelete(asked.Topic),
		admin.WithBrokerAddrDelete(asked.Address), admin.WithNameSrvAddr(nameServers))
}

func topics(request) (any, error) {
	by, err := administrator()
	if err != nil {
		return nil, err
	}
	list, err := by.FetchAllTopicList(context.Background())
	if err != nil {
		return nil, err
	}
	return list.TopicList, nil
}

func seconds(number float64) time.Duration { return time.Duration(number * float64(time.Second)) }
