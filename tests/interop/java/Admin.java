import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * What an operator asks. Answers of both versions' types: their packages differ, so `var` names none.
 */
final class Admin {
    private final String nameServer;
    private DefaultMQAdminExt admin;

    Admin(String nameServer) {
        this.nameServer = nameServer;
    }

    void addTo(Map<String, Client.Op> ops) {
        ops.put("create_topic", this::createTopic);
        ops.put("topics", this::topics);
        ops.put("route", this::route);
        ops.put("cluster", this::cluster);
        ops.put("runtime", this::runtime);
        ops.put("topic_stats", this::topicStats);
        ops.put("consume_stats", this::consumeStats);
        ops.put("group_members", this::groupMembers);
        ops.put("view_message", this::viewMessage);
        ops.put("query_key", this::queryKey);
        ops.put("mqadmin", this::mqadmin);
    }

    private DefaultMQAdminExt admin() throws Exception {
        if (admin == null) {
            admin = new DefaultMQAdminExt(Signing.hook(), 10_000);
            admin.setNamesrvAddr(nameServer);
            admin.setClientIP("127.0.0.1");
            admin.setInstanceName("admin");
            admin.start();
        }
        return admin;
    }

    /** What the tool prints for these words, with its exceptions if `errors`. 4.9 wants a file for its logs in its home. */
    private Object mqadmin(JSONObject request) throws Exception {
        Path home = Path.of(System.getProperty("user.home"));
        Path logging = Files.createDirectories(home.resolve("conf")).resolve("logback_tools.xml");
        Files.writeString(logging, "<configuration><root level=\"OFF\"/></configuration>");
        System.setProperty("rocketmq.home.dir", home.toString());
        System.setProperty("rocketmq.namesrv.addr", nameServer);
        PrintStream before = System.out;
        PrintStream errorsBefore = System.err;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream stream = new PrintStream(printed, true, StandardCharsets.UTF_8);
        System.setOut(stream);
        if (request.getBooleanValue("errors")) {
            System.setErr(stream);
        }
        try {
            MQAdminStartup.main0(request.getJSONArray("words").toArray(new String[0]), null);
        } finally {
            System.setOut(before);
            System.setErr(errorsBefore);
        }
        return printed.toString(StandardCharsets.UTF_8);
    }

    private Object createTopic(JSONObject request) throws Exception {
        TopicConfig config = new TopicConfig(request.getString("topic"));
        config.setReadQueueNums(request.getIntValue("queues"));
        config.setWriteQueueNums(request.getIntValue("queues"));
        admin().createAndUpdateTopicConfig(request.getString("address"), config);
        return null;
    }

    private Object topics(JSONObject request) throws Exception {
        return new JSONArray(new java.util.ArrayList<>(admin().fetchAllTopicList().getTopicList()));
    }

    /** Broker name to the addresses by id, and the queue data. */
    private Object route(JSONObject request) throws Exception {
        var found = admin().examineTopicRouteInfo(request.getString("topic"));
        JSONObject brokers = new JSONObject();
        for (var broker : found.getBrokerDatas()) {
            brokers.put(broker.getBrokerName(), byId(broker.getBrokerAddrs()));
        }
        JSONObject queues = new JSONObject();
        for (var queue : found.getQueueDatas()) {
            JSONObject shape = new JSONObject();
            shape.put("read_queues", queue.getReadQueueNums());
            shape.put("write_queues", queue.getWriteQueueNums());
            shape.put("permission", queue.getPerm());
            queues.put(queue.getBrokerName(), shape);
        }
        JSONObject shape = new JSONObject();
        shape.put("brokers", brokers);
        shape.put("queues", queues);
        return shape;
    }

    private Object cluster(JSONObject request) throws Exception {
        var info = admin().examineBrokerClusterInfo();
        JSONObject clusters = new JSONObject();
        info.getClusterAddrTable().forEach((name, members) ->
            clusters.put(name, new JSONArray(new java.util.ArrayList<>(members))));
        JSONObject brokers = new JSONObject();
        info.getBrokerAddrTable().forEach((name, broker) ->
            brokers.put(name, byId(broker.getBrokerAddrs())));
        JSONObject shape = new JSONObject();
        shape.put("clusters", clusters);
        shape.put("brokers", brokers);
        return shape;
    }

    private static JSONObject byId(Map<Long, String> addresses) {
        JSONObject shape = new JSONObject();
        addresses.forEach((id, address) -> shape.put(String.valueOf(id), address));
        return shape;
    }

    private Object runtime(JSONObject request) throws Exception {
        return admin().fetchBrokerRuntimeStats(request.getString("address")).getTable();
    }

    private Object topicStats(JSONObject request) throws Exception {
        JSONArray rows = new JSONArray();
        admin().examineTopicStats(request.getString("topic")).getOffsetTable()
            .forEach((queue, stats) -> {
                JSONObject row = Shapes.of(queue);
                row.put("min", stats.getMinOffset());
                row.put("max", stats.getMaxOffset());
                rows.add(row);
            });
        return rows;
    }

    private Object consumeStats(JSONObject request) throws Exception {
        JSONArray rows = new JSONArray();
        var stats = admin().examineConsumeStats(
            request.getString("group"), request.getString("topic"));
        stats.getOffsetTable().forEach((queue, offsets) -> {
            JSONObject row = Shapes.of((MessageQueue) queue);
            row.put("broker_offset", offsets.getBrokerOffset());
            row.put("consumer_offset", offsets.getConsumerOffset());
            rows.add(row);
        });
        return rows;
    }

    private Object groupMembers(JSONObject request) throws Exception {
        JSONArray members = new JSONArray();
        admin().examineConsumerConnectionInfo(request.getString("group")).getConnectionSet()
            .forEach(connection -> members.add(connection.getClientId()));
        return members;
    }

    private Object viewMessage(JSONObject request) throws Exception {
        return Shapes.of(
            admin().viewMessage(request.getString("topic"), request.getString("message_id")));
    }

    private Object queryKey(JSONObject request) throws Exception {
        JSONArray found = new JSONArray();
        for (MessageExt message : admin().queryMessage(
            request.getString("topic"), request.getString("key"), 32, 0, Long.MAX_VALUE)
            .getMessageList()) {
            found.add(Shapes.of(message));
        }
        return found;
    }
}
