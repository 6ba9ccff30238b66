import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.Map;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Transactions; a message says by its properties "local" and "checked" what its producer decides, and when asked. */
final class Transacting implements TransactionListener {
    private final String nameServer;
    private final ConcurrentLinkedQueue<JSONObject> checks = new ConcurrentLinkedQueue<>();
    private TransactionMQProducer producer;

    Transacting(String nameServer) {
        this.nameServer = nameServer;
    }

    void addTo(Map<String, Client.Op> ops) {
        ops.put("transaction_send", this::send);
        ops.put("transaction_checks", request -> new JSONArray(new java.util.ArrayList<>(checks)));
    }

    private TransactionMQProducer producer() throws Exception {
        if (producer == null) {
            producer = new TransactionMQProducer("java-transactions", Signing.hook());
            producer.setNamesrvAddr(nameServer);
            producer.setClientIP("127.0.0.1");
            producer.setInstanceName("transacting");
            producer.setSendMsgTimeout(10_000);
            producer.setTransactionListener(this);
            producer.start();
        }
        return producer;
    }

    private Object send(JSONObject request) throws Exception {
        Message message = Shapes.message(request);
        message.putUserProperty("local", request.getString("local"));
        message.putUserProperty("checked", (String) request.getOrDefault("checked", "UNKNOW"));
        return Shapes.of(producer().sendMessageInTransaction(message, null));
    }

    @Override
    public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
        return state(message.getUserProperty("local"));
    }

    @Override
    public LocalTransactionState checkLocalTransaction(MessageExt message) {
        checks.add(Shapes.of(message));
        return state(message.getUserProperty("checked"));
    }

    private static LocalTransactionState state(String name) {
        return "UNKNOW".equals(name)
            ? LocalTransactionState.UNKNOW : LocalTransactionState.valueOf(name + "_MESSAGE");
    }
}
