import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.trace.TraceBean;
import org.apache.rocketmq.client.trace.TraceContext;
import org.apache.rocketmq.client.trace.TraceDataEncoder;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** What producers can do beyond sending: requests and replies, namespaces, traces. */
final class Requesting {
    private final String nameServer;
    private final Map<String, DefaultMQProducer> producers = new HashMap<>();
    private final Map<String, DefaultMQPushConsumer> answerers = new HashMap<>();

    Requesting(String nameServer) {
        this.nameServer = nameServer;
    }

    void addTo(Map<String, Client.Op> ops) {
        ops.put("ask", this::ask);
        ops.put("answer_start", this::answerStart);
        ops.put("answer_stop", this::answerStop);
        ops.put("send_as", this::sendAs);
        ops.put("read_trace", this::readTrace);
    }

    /** By "group", "namespace" and "traced"; each is started once. */
    private DefaultMQProducer producer(JSONObject request) throws Exception {
        String group = request.getString("group");
        String namespace = request.getString("namespace");
        boolean traced = request.getBooleanValue("traced");
        String key = namespace + "/" + group + "/" + traced;
        DefaultMQProducer producer = producers.get(key);
        if (producer == null) {
            producer = new DefaultMQProducer(namespace, group, Signing.hook(), traced, null);
            producer.setNamesrvAddr(nameServer);
            producer.setClientIP("127.0.0.1");
            producer.setInstanceName("requesting-" + key.replace('/', '-'));
            producer.setSendMsgTimeout(10_000);
            producer.start();
            producers.put(key, producer);
        }
        return producer;
    }

    /** 5.3.3's other forms of request end with the answer to the send, without waiting for the reply. */
    private Object ask(JSONObject request) throws Exception {
        DefaultMQProducer producer = producer(request);
        BlockingQueue<Object> outcome = new ArrayBlockingQueue<>(1);
        RequestCallback callback = new RequestCallback() {
            @Override
            public void onSuccess(Message reply) {
                outcome.add(reply);
            }

            @Override
            public void onException(Throwable error) {
                outcome.add(error);
            }
        };
        MessageQueue queue =
            producer.fetchPublishMessageQueues(request.getString("topic")).get(0);
        long timeout = request.getLongValue("timeout_ms");
        producer.request(Shapes.message(request), queue, callback, timeout);
        Object reply = outcome.poll(2 * timeout, TimeUnit.MILLISECONDS);
        if (!(reply instanceof Message)) {
            throw new IllegalStateException("request: " + reply, (Throwable) reply);
        }
        JSONObject shape = new JSONObject();
        shape.put("body", new String(((Message) reply).getBody(), StandardCharsets.UTF_8));
        shape.put("properties", ((Message) reply).getProperties());
        return shape;
    }

    /** A consumer of "topic" that replies with the body in capitals. */
    private Object answerStart(JSONObject request) throws Exception {
        String group = request.getString("group");
        DefaultMQProducer producer = producer(request);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
            group, Signing.hook(), new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(nameServer);
        consumer.setClientIP("127.0.0.1");
        consumer.setInstanceName("answering-" + group);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(request.getString("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                String body = new String(message.getBody(), StandardCharsets.UTF_8);
                byte[] answer = body.toUpperCase(Locale.ROOT).getBytes(StandardCharsets.UTF_8);
                try {
                    producer.send(MessageUtil.createReplyMessage(message, answer));
                } catch (Exception error) {
                    error.printStackTrace();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        answerers.put(group, consumer);
        return null;
    }

    private Object answerStop(JSONObject request) {
        answerers.remove(request.getString("group")).shutdown();
        return null;
    }

    private Object sendAs(JSONObject request) throws Exception {
        return Shapes.of(producer(request).send(Shapes.message(request)));
    }

    /** What Java reads in the body of a trace message. */
    private Object readTrace(JSONObject request) {
        JSONArray contexts = new JSONArray();
        for (TraceContext context
            : TraceDataEncoder.decoderFromTraceDataString(request.getString("body"))) {
            JSONObject shape = new JSONObject();
            shape.put("type", String.valueOf(context.getTraceType()));
            shape.put("time", context.getTimeStamp());
            shape.put("region", context.getRegionId());
            shape.put("group", context.getGroupName());
            shape.put("cost", context.getCostTime());
            shape.put("success", context.isSuccess());
            shape.put("request_id", context.getRequestId());
            shape.put("context_code", context.getContextCode());
            List<JSONObject> beans = new ArrayList<>();
            for (TraceBean bean : context.getTraceBeans()) {
                beans.add(of(bean));
            }
            shape.put("beans", beans);
            contexts.add(shape);
        }
        return contexts;
    }

    private static JSONObject of(TraceBean bean) {
        JSONObject shape = new JSONObject();
        shape.put("topic", bean.getTopic());
        shape.put("message_id", bean.getMsgId());
        shape.put("offset_id", bean.getOffsetMsgId());
        shape.put("tags", bean.getTags());
        shape.put("keys", bean.getKeys());
        shape.put("store_host", bean.getStoreHost());
        shape.put("client_host", bean.getClientHost());
        shape.put("body_length", bean.getBodyLength());
        shape.put("retry_times", bean.getRetryTimes());
        shape.put("message_type", String.valueOf(bean.getMsgType()));
        shape.put("transaction_id", bean.getTransactionId());
        shape.put("transaction_state", String.valueOf(bean.getTransactionState()));
        shape.put("from_check", bean.isFromTransactionCheck());
        return shape;
    }
}
