import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

/** Who gets which queues by Java's strategies: {"strategy", "members", "topic", "brokers", "queues"} to queue texts by member. */
final class Allocating {
    private static final Map<String, AllocateMessageQueueStrategy> STRATEGIES = new HashMap<>();

    static {
        STRATEGIES.put("averagely", new AllocateMessageQueueAveragely());
        STRATEGIES.put("circle", new AllocateMessageQueueAveragelyByCircle());
        STRATEGIES.put("hash", new AllocateMessageQueueConsistentHash());
    }

    void addTo(Map<String, Client.Op> ops) {
        ops.put("allocate", Allocating::allocate);
    }

    private static Object allocate(JSONObject request) {
        List<MessageQueue> queues = new ArrayList<>();
        for (Object broker : request.getJSONArray("brokers")) {
            for (int id = 0; id < request.getIntValue("queues"); id++) {
                queues.add(new MessageQueue(request.getString("topic"), (String) broker, id));
            }
        }
        Collections.sort(queues);
        List<String> members = request.getJSONArray("members").toJavaList(String.class);
        Collections.sort(members);
        AllocateMessageQueueStrategy strategy = STRATEGIES.get(request.getString("strategy"));
        Map<String, List<String>> shares = new HashMap<>();
        for (String member : members) {
            List<String> share = new ArrayList<>();
            for (MessageQueue queue : strategy.allocate("g", member, queues, members)) {
                share.add(queue.getBrokerName() + ":" + queue.getQueueId());
            }
            shares.put(member, share);
        }
        return shares;
    }
}
