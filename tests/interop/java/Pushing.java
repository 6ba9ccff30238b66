import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** Group consumers: push (messages are kept until they are taken) and lite pull. One of each a group. */
final class Pushing {
    private static final int MAX_QUEUED_BY_CLIENT = 1000;
    private static final long MILLIS_TO_FINISH = 10_000;

    private final String nameServer;
    private final Map<String, DefaultMQPushConsumer> pushers = new HashMap<>();
    private final Map<String, BlockingQueue<MessageExt>> received = new HashMap<>();
    private final Map<String, DefaultLitePullConsumer> lites = new HashMap<>();

    Pushing(String nameServer) {
        this.nameServer = nameServer;
    }

    void addTo(Map<String, Client.Op> ops) {
        ops.put("push_start", this::pushStart);
        ops.put("push_take", this::pushTake);
        ops.put("push_stop", this::pushStop);
        ops.put("lite_start", this::liteStart);
        ops.put("lite_take", this::liteTake);
        ops.put("lite_commit", this::liteCommit);
        ops.put("lite_stop", this::liteStop);
    }

    private Object pushStart(JSONObject request) throws Exception {
        String group = request.getString("group");
        BlockingQueue<MessageExt> inbox = new LinkedBlockingQueue<>();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
            group, Signing.hook(), new AllocateMessageQueueAveragely(),
            request.getBooleanValue("traced"), null);
        consumer.setNamesrvAddr(nameServer);
        consumer.setClientIP("127.0.0.1");
        consumer.setInstanceName("pushing-" + group);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPullThresholdForQueue(MAX_QUEUED_BY_CLIENT);
        consumer.setAwaitTerminationMillisWhenShutdown(MILLIS_TO_FINISH);
        consumer.subscribe(
            request.getString("topic"), (String) request.getOrDefault("tags", "*"));
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            inbox.addAll(messages);
            Working.pause(request.getLongValue("work_ms"));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        pushers.put(group, consumer);
        received.put(group, inbox);
        return null;
    }

    /** Up to "count" messages, waiting for "timeout" seconds in all. */
    private Object pushTake(JSONObject request) throws Exception {
        BlockingQueue<MessageExt> inbox = received.get(request.getString("group"));
        long deadline = deadline(request);
        List<MessageExt> taken = new ArrayList<>();
        while (taken.size() < request.getIntValue("count")) {
            MessageExt message = inbox.poll(deadline - System.nanoTime(), TimeUnit.NANOSECONDS);
            if (message == null) {
                break;
            }
            taken.add(message);
        }
        return Shapes.of(taken);
    }

    /**
     * A stopped consumer has written its offsets to the broker, those of every message that was
     * taken too: a message is taken before its listener has returned, so stopping waits for that.
     */
    private Object pushStop(JSONObject request) {
        pushers.remove(request.getString("group")).shutdown();
        return null;
    }

    private Object liteStart(JSONObject request) throws Exception {
        String group = request.getString("group");
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(group, Signing.hook());
        consumer.setNamesrvAddr(nameServer);
        consumer.setClientIP("127.0.0.1");
        consumer.setInstanceName("lite-" + group);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAutoCommit(false);
        consumer.subscribe(
            request.getString("topic"), (String) request.getOrDefault("tags", "*"));
        consumer.start();
        lites.put(group, consumer);
        return null;
    }

    private Object liteTake(JSONObject request) {
        DefaultLitePullConsumer consumer = lites.get(request.getString("group"));
        long deadline = deadline(request);
        JSONArray taken = new JSONArray();
        while (taken.size() < request.getIntValue("count") && System.nanoTime() < deadline) {
            taken.addAll(Shapes.of(consumer.poll(500)));
        }
        return taken;
    }

    private Object liteCommit(JSONObject request) {
        lites.get(request.getString("group")).commitSync();
        return null;
    }

    private Object liteStop(JSONObject request) {
        lites.remove(request.getString("group")).shutdown();
        return null;
    }

    private static long deadline(JSONObject request) {
        double seconds = request.containsKey("timeout") ? request.getDoubleValue("timeout") : 20;
        return System.nanoTime() + (long) (seconds * 1e9);
    }
}
