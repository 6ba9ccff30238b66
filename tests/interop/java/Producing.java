import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** Sends: one by one (sync, async, oneway, to a chosen queue) and in batches. */
final class Producing {
    private static final int ASYNC_TIMEOUT_SECONDS = 20;

    private final String nameServer;
    private DefaultMQProducer producer;

    Producing(String nameServer) {
        this.nameServer = nameServer;
    }

    void addTo(Map<String, Client.Op> ops) {
        ops.put("send", this::send);
        ops.put("send_many", this::sendMany);
        ops.put("send_batch", this::sendBatch);
        ops.put("publish_queues", this::publishQueues);
    }

    private DefaultMQProducer producer() throws Exception {
        if (producer == null) {
            producer = new DefaultMQProducer("java-producer", Signing.hook());
            producer.setNamesrvAddr(nameServer);
            producer.setClientIP("127.0.0.1");
            producer.setInstanceName("producing");
            producer.setSendMsgTimeout(10_000);
            producer.start();
        }
        return producer;
    }

    private Object send(JSONObject request) throws Exception {
        Message message = Shapes.message(request);
        MessageQueue queue = request.containsKey("queue_id") ? Shapes.queue(request) : null;
        String mode = request.getString("mode");
        if ("oneway".equals(mode)) {
            if (queue == null) {
                producer().sendOneway(message);
            } else {
                producer().sendOneway(message, queue);
            }
            return null;
        }
        if ("async".equals(mode)) {
            return sendAsync(message, queue);
        }
        return Shapes.of(
            queue == null ? producer().send(message) : producer().send(message, queue));
    }

    private Object sendAsync(Message message, MessageQueue queue) throws Exception {
        BlockingQueue<Object> answer = new ArrayBlockingQueue<>(1);
        SendCallback callback = new SendCallback() {
            @Override
            public void onSuccess(SendResult sent) {
                answer.add(sent);
            }

            @Override
            public void onException(Throwable error) {
                answer.add(error);
            }
        };
        if (queue == null) {
            producer().send(message, callback);
        } else {
            producer().send(message, queue, callback);
        }
        Object outcome = answer.poll(ASYNC_TIMEOUT_SECONDS, TimeUnit.SECONDS);
        if (outcome instanceof SendResult) {
            return Shapes.of((SendResult) outcome);
        }
        throw new IllegalStateException("asynchronous send: " + outcome, (Throwable) outcome);
    }

    /** "count" messages with the bodies prefix-0, prefix-1, …, over all queues or to one. */
    private Object sendMany(JSONObject request) throws Exception {
        JSONArray results = new JSONArray();
        String prefix = request.getString("prefix");
        for (int number = 0; number < request.getIntValue("count"); number++) {
            request.put("body", prefix + "-" + number + request.getOrDefault("padding", ""));
            results.add(send(request));
        }
        return results;
    }

    private Object sendBatch(JSONObject request) throws Exception {
        List<Message> messages = new ArrayList<>();
        for (Object body : request.getJSONArray("bodies")) {
            request.put("body", body);
            messages.add(Shapes.message(request));
        }
        return Shapes.of(request.containsKey("queue_id")
            ? producer().send(messages, Shapes.queue(request))
            : producer().send(messages));
    }

    private Object publishQueues(JSONObject request) throws Exception {
        JSONArray queues = new JSONArray();
        for (MessageQueue queue : producer().fetchPublishMessageQueues(request.getString("topic"))) {
            queues.add(Shapes.of(queue));
        }
        return queues;
    }
}
