import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.Collection;
import java.util.TreeMap;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** The JSON shapes of messages, queues and send results on the driver's lines. */
final class Shapes {
    private Shapes() {
    }

    static Message message(JSONObject request) {
        Message message = new Message(
            request.getString("topic"), request.getString("body").getBytes(StandardCharsets.UTF_8));
        if (request.containsKey("tags")) {
            message.setTags(request.getString("tags"));
        }
        if (request.containsKey("keys")) {
            message.setKeys(request.getString("keys"));
        }
        if (request.containsKey("delay_level")) {
            message.setDelayTimeLevel(request.getIntValue("delay_level"));
        }
        JSONObject properties = request.getJSONObject("properties");
        if (properties != null) {
            properties.forEach((name, value) -> message.putUserProperty(name, (String) value));
        }
        return message;
    }

    static MessageQueue queue(JSONObject request) {
        return new MessageQueue(
            request.getString("topic"), request.getString("broker"), request.getIntValue("queue_id"));
    }

    static JSONObject of(MessageQueue queue) {
        JSONObject shape = new JSONObject();
        shape.put("topic", queue.getTopic());
        shape.put("broker", queue.getBrokerName());
        shape.put("queue_id", queue.getQueueId());
        return shape;
    }

    static JSONObject of(SendResult sent) {
        JSONObject shape = of(sent.getMessageQueue());
        shape.put("status", sent.getSendStatus().name());
        shape.put("message_id", sent.getMsgId());
        shape.put("offset_id", sent.getOffsetMsgId());
        shape.put("queue_offset", sent.getQueueOffset());
        return shape;
    }

    static JSONObject of(MessageExt message) {
        JSONObject shape = new JSONObject();
        shape.put("topic", message.getTopic());
        shape.put("queue_id", message.getQueueId());
        shape.put("queue_offset", message.getQueueOffset());
        shape.put("physical_offset", message.getCommitLogOffset());
        shape.put("body", new String(message.getBody(), StandardCharsets.UTF_8));
        shape.put("tags", message.getTags());
        shape.put("keys", message.getKeys());
        shape.put("properties", new TreeMap<>(message.getProperties()));
        shape.put("message_id", message.getMsgId());
        shape.put("sys_flag", message.getSysFlag());
        shape.put("flag", message.getFlag());
        shape.put("reconsume_times", message.getReconsumeTimes());
        shape.put("store_host", String.valueOf(message.getStoreHost()));
        shape.put("store_timestamp_ms", message.getStoreTimestamp());
        return shape;
    }

    static JSONArray of(Collection<MessageExt> messages) {
        JSONArray shapes = new JSONArray();
        messages.forEach(message -> shapes.add(of(message)));
        return shapes;
    }
}
