import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.MQFilterException;
import org.apache.rocketmq.filter.parser.SelectorParser;

/** Consumers that fail, keep order, choose by SQL92 or reply; requests; and Apache's own judgement of expressions. */
final class Working {
    private final String nameServer;
    private final Map<String, DefaultMQPushConsumer> workers = new HashMap<>();
    private final Map<String, ConcurrentLinkedQueue<JSONObject>> seen = new HashMap<>();
    private DefaultMQProducer producer;

    Working(String nameServer) {
        this.nameServer = nameServer;
    }

    void addTo(Map<String, Client.Op> ops) {
        ops.put("work_start", this::workStart);
        ops.put("work_seen", this::workSeen);
        ops.put("work_stop", this::workStop);
        ops.put("work_nodes", this::workNodes);
        ops.put("request", this::request);
        ops.put("judge", this::judge);
    }

    /**
     * A push consumer of "group", as "member", on "topic". It fails each message "failures" times (at delay level
     * "delay_level", at most "max_reconsume" times), keeps order if "orderly", chooses by "sql", replies if "replies",
     * gets all there is if "broadcasting". A group that never committed begins "from" FIRST (unless it is said), LAST or
     * TIMESTAMP, which is half an hour ago; "batch" messages are pulled and "kept" ahead of the listener at most.
     */
    private Object workStart(JSONObject request) throws Exception {
        String member = request.getString("member");
        ConcurrentLinkedQueue<JSONObject> inbox = new ConcurrentLinkedQueue<>();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
            request.getString("group"), Signing.hook(), new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(nameServer);
        consumer.setClientIP("127.0.0.1");
        consumer.setInstanceName("working-" + member);
        String from = (String) request.getOrDefault("from", "FIRST");
        consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf(
            "CONSUME_FROM_" + from + ("TIMESTAMP".equals(from) ? "" : "_OFFSET")));
        if (request.containsKey("batch")) {
            consumer.setPullBatchSize(request.getIntValue("batch"));
            consumer.setPullThresholdForQueue(request.getIntValue("kept"));
            consumer.setConsumeThreadMin(1);
            consumer.setConsumeThreadMax(1);
        }
        if (request.getBooleanValue("broadcasting")) {
            // By way of an instance: its package is another one in each version.
            consumer.setMessageModel(consumer.getMessageModel().valueOf("BROADCASTING"));
        }
        if (request.containsKey("max_reconsume")) {
            consumer.setMaxReconsumeTimes(request.getIntValue("max_reconsume"));
        }
        if (request.containsKey("sql")) {
            consumer.subscribe(
                request.getString("topic"), MessageSelector.bySql(request.getString("sql")));
        } else {
            consumer.subscribe(request.getString("topic"), "*");
        }
        int failures = request.getIntValue("failures");
        long pause = request.getLongValue("pause_ms");
        if (request.getBooleanValue("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                note(inbox, member, messages);
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            int level = request.getIntValue("delay_level");
            boolean replies = request.getBooleanValue("replies");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                note(inbox, member, messages);
                pause(pause);
                context.setDelayLevelWhenNextConsume(level);
                for (MessageExt message : messages) {
                    if (message.getReconsumeTimes() < failures) {
                        return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                    }
                    if (replies && message.getProperty("REPLY_TO_CLIENT") != null) {
                        reply(message);
                    }
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        workers.put(member, consumer);
        seen.put(member, inbox);
        return null;
    }

    private static void note(
        ConcurrentLinkedQueue<JSONObject> inbox, String member, List<MessageExt> messages) {
        for (MessageExt message : messages) {
            JSONObject shape = Shapes.of(message);
            shape.put("reconsume_times", message.getReconsumeTimes());
            shape.put("member", member);
            shape.put("time_ms", System.currentTimeMillis());
            inbox.add(shape);
        }
    }

    private void reply(MessageExt message) {
        try {
            byte[] body = ("re: " + new String(message.getBody(), StandardCharsets.UTF_8))
                .getBytes(StandardCharsets.UTF_8);
            producer().send(MessageUtil.createReplyMessage(message, body), 10_000);
        } catch (Exception error) {
            error.printStackTrace();
        }
    }

    /** All that the member has seen so far, each time it was handed a message. */
    private Object workSeen(JSONObject request) {
        return new JSONArray(List.copyOf(seen.get(request.getString("member"))));
    }

    /** The broker ids that the member's queues are pulled from next. */
    private Object workNodes(JSONObject request) throws Exception {
        return Nodes.of(workers.get(request.getString("member")).getDefaultMQPushConsumerImpl());
    }

    static void pause(long milliseconds) {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    private Object workStop(JSONObject request) {
        workers.remove(request.getString("member")).shutdown();
        return null;
    }

    private DefaultMQProducer producer() throws Exception {
        synchronized (this) {
            if (producer == null) {
                producer = new DefaultMQProducer("java-requester", Signing.hook());
                producer.setNamesrvAddr(nameServer);
                producer.setClientIP("127.0.0.1");
                producer.setInstanceName("requesting");
                producer.start();
            }
            return producer;
        }
    }

    /** Send a message and wait for its reply; by callback, as the waiting form of 5.3.3 ends when the send is answered. */
    private Object request(JSONObject request) throws Exception {
        CompletableFuture<String> reply = new CompletableFuture<>();
        producer().request(Shapes.message(request), new RequestCallback() {
            @Override
            public void onSuccess(Message message) {
                reply.complete(new String(message.getBody(), StandardCharsets.UTF_8));
            }

            @Override
            public void onException(Throwable error) {
                reply.completeExceptionally(error);
            }
        }, 10_000);
        return reply.get(15, TimeUnit.SECONDS);
    }

    /** For each expression and each map of properties what Apache's broker would do: "refused", true or false. */
    private Object judge(JSONObject request) {
        JSONArray verdicts = new JSONArray();
        for (Object expression : request.getJSONArray("expressions")) {
            JSONArray row = new JSONArray();
            for (Object properties : request.getJSONArray("properties")) {
                row.add(verdict((String) expression, (JSONObject) properties));
            }
            verdicts.add(row);
        }
        return verdicts;
    }

    private static Object verdict(String expression, JSONObject properties) {
        EvaluationContext context = new EvaluationContext() {
            @Override
            public Object get(String name) {
                return properties.get(name);
            }

            @Override
            public Map<String, Object> keyValues() {
                return properties;
            }
        };
        try {
            Object result = SelectorParser.parse(expression).evaluate(context);
            return Boolean.TRUE.equals(result);
        } catch (MQFilterException error) {
            return "refused";
        } catch (Throwable error) {
            return false;
        }
    }
}
