import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/**
 * One send of a RocketMQ 5 client through a proxy: `Sends proxy topic normal|fifo|commit|rollback`. It prints `sent`, or
 * ends with the exception.
 */
public final class Sends {
    public static void main(String[] words) throws Exception {
        String topic = words[1];
        String kind = words[2];
        ClientServiceProvider provider = ClientServiceProvider.loadService();
        ClientConfiguration configuration =
            ClientConfiguration.newBuilder().setEndpoints(words[0]).enableSsl(false).build();
        try (Producer producer = provider.newProducerBuilder()
            .setClientConfiguration(configuration)
            .setTopics(topic)
            .setTransactionChecker(message -> TransactionResolution.UNKNOWN)
            .build()) {
            MessageBuilder builder = provider.newMessageBuilder()
                .setTopic(topic)
                .setBody(kind.getBytes(StandardCharsets.UTF_8));
            if (kind.equals("fifo")) {
                builder.setMessageGroup("one");
            }
            Message message = builder.build();
            if (kind.equals("commit") || kind.equals("rollback")) {
                Transaction transaction = producer.beginTransaction();
                producer.send(message, transaction);
                if (kind.equals("commit")) {
                    transaction.commit();
                } else {
                    transaction.rollback();
                }
            } else {
                producer.send(message);
            }
            System.out.println("sent");
        }
        System.exit(0);
    }
}
