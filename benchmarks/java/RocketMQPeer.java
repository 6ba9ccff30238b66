import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Apache's client doing the work that is measured. Argument: the name server's address.
 *
 * A line of words on standard input is one job: awaited TOPIC COUNT SIZE, singles TOPIC COUNT IN_FLIGHT SIZE,
 * auto TOPIC COUNT SIZE, batches TOPIC COUNT BATCH SIZE, lite TOPIC COUNT, push TOPIC COUNT. Back comes "ok SECONDS"
 * or "error WHY". What the library prints goes to standard error. The program ends with its standard input.
 */
public final class RocketMQPeer {
    private static final int PULL_BATCH = 32;
    private static final int AUTO_IN_FLIGHT = 1024;
    private static final int PATIENCE = 60;
    /** Milliseconds; with the 3 s of the library a first send fails where other work takes the cores. */
    private static final int QUESTION_TIMEOUT = 20_000;

    private final String nameServer;
    private final Map<Boolean, DefaultMQProducer> producers = new HashMap<>();
    private int consumers;

    private RocketMQPeer(String nameServer) {
        this.nameServer = nameServer;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        RocketMQPeer peer = new RocketMQPeer(arguments[0]);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String answer;
            try {
                answer = "ok " + peer.run(line.trim().split(" ")) / 1e9;
            } catch (Exception error) {
                error.printStackTrace();
                answer = "error " + error.toString().replace('\n', ' ');
            }
            answers.println(answer);
            answers.flush();
        }
        System.exit(0);
    }

    private long run(String[] words) throws Exception {
        String topic = words[1];
        int count = Integer.parseInt(words[2]);
        switch (words[0]) {
            case "awaited":
                return sendAwaited(topic, count, Integer.parseInt(words[3]));
            case "singles":
                return sendAsync(false, topic, count, Integer.parseInt(words[3]), Integer.parseInt(words[4]));
            case "auto":
                return sendAsync(true, topic, count, AUTO_IN_FLIGHT, Integer.parseInt(words[3]));
            case "batches":
                return sendBatches(topic, count, Integer.parseInt(words[3]), Integer.parseInt(words[4]));
            case "lite":
                return poll(topic, count);
            case "push":
                return listen(topic, count);
            default:
                throw new IllegalArgumentException("no job " + words[0]);
        }
    }

    private DefaultMQProducer producer(boolean autoBatch) throws Exception {
        DefaultMQProducer producer = producers.get(autoBatch);
        if (producer == null) {
            producer = new DefaultMQProducer("bench-producer-" + autoBatch, Signing.hook());
            producer.setNamesrvAddr(nameServer);
            producer.setClientIP("127.0.0.1");
            producer.setInstanceName("producing-" + autoBatch);
            producer.setSendMsgTimeout(10_000);
            producer.setMqClientApiTimeout(QUESTION_TIMEOUT);
            producer.setAutoBatch(autoBatch);
            producer.start();
            producers.put(autoBatch, producer);
        }
        return producer;
    }

    private long sendAwaited(String topic, int count, int size) throws Exception {
        DefaultMQProducer producer = producer(false);
        byte[] body = new byte[size];
        long start = System.nanoTime();
        for (int number = 0; number < count; number++) {
            SendResult result = producer.send(new Message(topic, body));
            if (result.getSendStatus() != SendStatus.SEND_OK) {
                throw new IllegalStateException("a send was answered " + result.getSendStatus());
            }
        }
        return System.nanoTime() - start;
    }

    private long sendAsync(boolean autoBatch, String topic, int count, int inFlight, int size) throws Exception {
        DefaultMQProducer producer = producer(autoBatch);
        Semaphore free = new Semaphore(inFlight);
        AtomicInteger failed = new AtomicInteger();
        AtomicReference<String> why = new AtomicReference<>();
        SendCallback callback = new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                if (result.getSendStatus() != SendStatus.SEND_OK) {
                    failed.incrementAndGet();
                    why.set(result.getSendStatus().name());
                }
                free.release();
            }

            @Override
            public void onException(Throwable error) {
                failed.incrementAndGet();
                why.set(error.toString());
                free.release();
            }
        };
        byte[] body = new byte[size];
        long start = System.nanoTime();
        for (int number = 0; number < count; number++) {
            free.acquire();
            producer.send(new Message(topic, body), callback);
        }
        free.acquire(inFlight);
        long taken = System.nanoTime() - start;
        if (failed.get() > 0) {
            throw new IllegalStateException(failed + " of " + count + " sends failed, the last: " + why);
        }
        return taken;
    }

    private long sendBatches(String topic, int count, int batch, int size) throws Exception {
        DefaultMQProducer producer = producer(false);
        byte[] body = new byte[size];
        long start = System.nanoTime();
        for (int sent = 0; sent < count; sent += batch) {
            List<Message> messages = new ArrayList<>(batch);
            for (int number = 0; number < batch; number++) {
                messages.add(new Message(topic, body));
            }
            SendResult result = producer.send(messages);
            if (result.getSendStatus() != SendStatus.SEND_OK) {
                throw new IllegalStateException("a batch was answered " + result.getSendStatus());
            }
        }
        return System.nanoTime() - start;
    }

    /** All queues from their beginning; the clock starts with the first message. */
    private long poll(String topic, int count) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(
            "bench-lite-" + consumers++, Signing.hook());
        consumer.setNamesrvAddr(nameServer);
        consumer.setClientIP("127.0.0.1");
        consumer.setInstanceName(consumer.getConsumerGroup());
        consumer.setMqClientApiTimeout(QUESTION_TIMEOUT);
        consumer.setAutoCommit(false);
        consumer.setPullBatchSize(PULL_BATCH);
        consumer.start();
        try {
            Collection<MessageQueue> queues = consumer.fetchMessageQueues(topic);
            consumer.assign(queues);
            for (MessageQueue queue : queues) {
                consumer.seekToBegin(queue);
            }
            long start = 0;
            long received = 0;
            long bytes = 0;
            long deadline = System.nanoTime() + Duration.ofSeconds(PATIENCE).toNanos();
            while (received < count) {
                for (MessageExt message : consumer.poll(1000)) {
                    if (start == 0) {
                        start = System.nanoTime();
                    }
                    bytes += message.getBody().length;
                    received++;
                }
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException(received + " of " + count + " messages within " + PATIENCE + " s");
                }
            }
            long taken = System.nanoTime() - start;
            if (bytes == 0) {
                throw new IllegalStateException("only empty messages");
            }
            return taken;
        } finally {
            consumer.shutdown();
        }
    }

    /** A group's only member, with the library's own numbers of threads and of messages for each call. */
    private long listen(String topic, int count) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
            "bench-push-" + consumers++, Signing.hook(), new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(nameServer);
        consumer.setClientIP("127.0.0.1");
        consumer.setInstanceName(consumer.getConsumerGroup());
        consumer.setMqClientApiTimeout(QUESTION_TIMEOUT);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        AtomicLong start = new AtomicLong();
        AtomicLong received = new AtomicLong();
        AtomicLong bytes = new AtomicLong();
        AtomicLong taken = new AtomicLong();
        CountDownLatch done = new CountDownLatch(1);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            start.compareAndSet(0, System.nanoTime());
            for (MessageExt message : messages) {
                bytes.addAndGet(message.getBody().length);
                if (received.incrementAndGet() == count) {
                    taken.set(System.nanoTime() - start.get());
                    done.countDown();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            if (!done.await(PATIENCE, TimeUnit.SECONDS)) {
                throw new IllegalStateException(received + " of " + count + " messages within " + PATIENCE + " s");
            }
            if (bytes.get() == 0) {
                throw new IllegalStateException("only empty messages");
            }
            return taken.get();
        } finally {
            consumer.shutdown();
        }
    }
}
