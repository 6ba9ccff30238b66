import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

/**
 * Apache's own client, driven line by line: a JSON object with "op" on standard input, one JSON object
 * back on standard output ("error" in it when the call threw). One argument: the name server's address.
 *
 * What the library prints goes to standard error. The program ends with its standard input.
 */
public final class Client {
    interface Op {
        Object run(JSONObject request) throws Exception;
    }

    private Client() {
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        String nameServer = arguments[0];
        Map<String, Op> ops = new HashMap<>();
        new Producing(nameServer).addTo(ops);
        new Pulling(nameServer).addTo(ops);
        new Pushing(nameServer).addTo(ops);
        new Requesting(nameServer).addTo(ops);
        new Admin(nameServer).addTo(ops);
        new Allocating().addTo(ops);
        new Transacting(nameServer).addTo(ops);
        new Working(nameServer).addTo(ops);
        BufferedReader lines = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            answers.println(answer(ops, line));
            answers.flush();
        }
        System.exit(0);
    }

    private static String answer(Map<String, Op> ops, String line) {
        JSONObject result = new JSONObject();
        try {
            JSONObject request = JSON.parseObject(line);
            Op op = ops.get(request.getString("op"));
            if (op == null) {
                throw new IllegalArgumentException("no op like that, but " + ops.keySet());
            }
            result.put("result", op.run(request));
        } catch (Exception error) {
            error.printStackTrace();
            result.put("error", error.toString());
        }
        return JSON.toJSONString(result);
    }
}
