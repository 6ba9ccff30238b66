import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.remoting.RPCHook;

/** How requests are signed: with the account in the properties story.accessKey and story.secretKey, if there is one. */
final class Signing {
    private Signing() {
    }

    static RPCHook hook() {
        String accessKey = System.getProperty("story.accessKey");
        if (accessKey == null) {
            return null;
        }
        return new AclClientRPCHook(
            new SessionCredentials(accessKey, System.getProperty("story.secretKey")));
    }
}
