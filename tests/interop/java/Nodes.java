import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.lang.reflect.Field;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.common.message.MessageQueue;

/** A consumer's node table: the broker id that each queue is pulled from next, which the library keeps to itself. */
final class Nodes {
    private Nodes() {
    }

    @SuppressWarnings("unchecked")
    static JSONArray of(Object consumer) throws Exception {
        Object pulls = field(consumer, "pullAPIWrapper");
        JSONArray rows = new JSONArray();
        ((Map<MessageQueue, AtomicLong>) field(pulls, "pullFromWhichNodeTable"))
            .forEach((queue, node) -> {
                JSONObject row = Shapes.of(queue);
                row.put("node", node.get());
                rows.add(row);
            });
        return rows;
    }

    private static Object field(Object owner, String name) throws Exception {
        Field field = owner.getClass().getDeclaredField(name);
        field.setAccessible(true);
        return field.get(owner);
    }
}
