import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.store.OffsetStore;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Pulls by queue, and every offset a client can ask a broker for. One consumer a group. */
@SuppressWarnings("deprecation")
final class Pulling {
    private final String nameServer;
    private final Map<String, DefaultMQPullConsumer> consumers = new HashMap<>();

    Pulling(String nameServer) {
        this.nameServer = nameServer;
    }

    void addTo(Map<String, Client.Op> ops) {
        ops.put("pull", this::pull);
        ops.put("read_all", this::readAll);
        ops.put("pull_nodes", this::pullNodes);
        ops.put("subscribe_queues", this::subscribeQueues);
        ops.put("offsets", this::offsets);
        ops.put("commit", this::commit);
        ops.put("committed", this::committed);
    }

    private DefaultMQPullConsumer consumer(JSONObject request) throws Exception {
        String group = (String) request.getOrDefault("group", "java-puller");
        DefaultMQPullConsumer consumer = consumers.get(group);
        if (consumer == null) {
            consumer = new DefaultMQPullConsumer(group, Signing.hook());
            consumer.setNamesrvAddr(nameServer);
            consumer.setClientIP("127.0.0.1");
            consumer.setInstanceName("pulling-" + group);
            consumer.start();
            consumers.put(group, consumer);
        }
        return consumer;
    }

    /** "block" waits for a message at the broker (20 s at most), otherwise it answers at once. */
    private Object pull(JSONObject request) throws Exception {
        DefaultMQPullConsumer consumer = consumer(request);
        MessageQueue queue = Shapes.queue(request);
        String expression = (String) request.getOrDefault("tags", "*");
        long offset = request.getLongValue("offset");
        int count = (Integer) request.getOrDefault("max", 32);
        PullResult pulled = request.getBooleanValue("block")
            ? consumer.pullBlockIfNotFound(queue, expression, offset, count)
            : consumer.pull(queue, expression, offset, count);
        JSONObject shape = new JSONObject();
        shape.put("status", pulled.getPullStatus().name());
        shape.put("next_offset", pulled.getNextBeginOffset());
        shape.put("min_offset", pulled.getMinOffset());
        shape.put("max_offset", pulled.getMaxOffset());
        shape.put("messages", messages(pulled));
        return shape;
    }

    /** The broker ids that the group's queues are pulled from next. */
    private Object pullNodes(JSONObject request) throws Exception {
        return Nodes.of(consumer(request).getDefaultMQPullConsumerImpl());
    }

    private static JSONArray messages(PullResult pulled) {
        Collection<MessageExt> found = pulled.getMsgFoundList();
        return found == null ? new JSONArray() : Shapes.of(found);
    }

    /** Every message of every queue of a topic, from each queue's beginning to where it ends now. */
    private Object readAll(JSONObject request) throws Exception {
        DefaultMQPullConsumer consumer = consumer(request);
        String expression = (String) request.getOrDefault("tags", "*");
        JSONArray all = new JSONArray();
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(request.getString("topic"))) {
            long offset = consumer.minOffset(queue);
            long end = consumer.maxOffset(queue);
            while (offset < end) {
                PullResult pulled = consumer.pull(queue, expression, offset, 32);
                if (pulled.getNextBeginOffset() <= offset) {
                    throw new IllegalStateException(queue + " does not move: " + pulled);
                }
                all.addAll(messages(pulled));
                offset = pulled.getNextBeginOffset();
            }
        }
        return all;
    }

    private Object subscribeQueues(JSONObject request) throws Exception {
        JSONArray queues = new JSONArray();
        for (MessageQueue queue
            : consumer(request).fetchSubscribeMessageQueues(request.getString("topic"))) {
            queues.add(Shapes.of(queue));
        }
        return queues;
    }

    private Object offsets(JSONObject request) throws Exception {
        DefaultMQPullConsumer consumer = consumer(request);
        MessageQueue queue = Shapes.queue(request);
        JSONObject shape = new JSONObject();
        shape.put("min", consumer.minOffset(queue));
        shape.put("max", consumer.maxOffset(queue));
        shape.put("earliest_store_time_ms", consumer.earliestMsgStoreTime(queue));
        if (request.containsKey("timestamp_ms")) {
            shape.put("at", consumer.searchOffset(queue, request.getLongValue("timestamp_ms")));
        }
        return shape;
    }

    private Object commit(JSONObject request) throws Exception {
        OffsetStore store = consumer(request).getDefaultMQPullConsumerImpl().getOffsetStore();
        MessageQueue queue = Shapes.queue(request);
        long offset = request.getLongValue("offset");
        // In memory too: the client writes what it has there to the broker every five seconds.
        store.updateOffset(queue, offset, false);
        store.updateConsumeOffsetToBroker(queue, offset, false);
        return null;
    }

    /** What the broker says: an offset, -1 for none, -2 when it could not be asked. */
    private Object committed(JSONObject request) throws Exception {
        OffsetStore store = consumer(request).getDefaultMQPullConsumerImpl().getOffsetStore();
        return store.readOffset(Shapes.queue(request), ReadOffsetType.READ_FROM_STORE);
    }
}
