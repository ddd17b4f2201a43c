import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.LinkedHashMap;
import java.util.Map;

/** The targets that are written in Java: Target NAME. */
class Target {
    /** A lock of a library. All calls come from one thread. */
    interface Locker {
        /** Waits for the lock so many milliseconds, and returns null if somebody else has it. */
        Hold acquire(long wait) throws Exception;
    }

    /** One hold of a lock. */
    interface Hold {
        default long token() {
            return 0;
        }

        boolean held() throws Exception;

        void release() throws Exception;
    }

    static final ObjectMapper json = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        JsonNode start = json.readTree(in.readLine());
        String url = start.get("url").asText();
        String name = start.get("name").asText();
        long ttl = start.get("ttl").asLong();
        Locker locker = switch (args[0]) {
            case "redisson" -> RedissonLocks.watchdog(url, name, ttl);
            case "redisson-lease" -> RedissonLocks.lease(url, name, ttl);
            case "redisson-fenced" -> RedissonLocks.fenced(url, name, ttl);
            case "curator" -> CuratorLocks.open(url, name, ttl, false);
            case "curator-listener" -> CuratorLocks.open(url, name, ttl, true);
            case "shedlock-redis" -> ShedLocks.redis(url, name, ttl);
            case "shedlock-jdbc" -> ShedLocks.jdbc(url, name, ttl);
            default -> throw new IllegalArgumentException("there is no target " + args[0]);
        };
        send(Map.of("type", "ready"));
        serve(in, locker);
        Runtime.getRuntime().halt(0); // the libraries have threads that would go on
    }

    static void serve(BufferedReader in, Locker locker) throws Exception {
        Hold hold = null;
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode message = json.readTree(line);
            Map<String, Object> answer = new LinkedHashMap<>();
            answer.put("id", message.get("id").asLong());
            try {
                switch (message.get("type").asText()) {
                    case "acquire" -> {
                        hold = locker.acquire(message.get("wait").asLong());
                        answer.put("type", hold == null ? "denied" : "granted");
                        if (hold != null && hold.token() > 0) {
                            answer.put("token", hold.token());
                        }
                    }
                    case "held" -> {
                        answer.put("type", "held");
                        answer.put("held", stillHeld(hold));
                    }
                    default -> {
                        hold.release();
                        answer.put("type", "released");
                    }
                }
            } catch (Exception e) {
                answer.put("type", "error");
                answer.put("error", e.toString());
            }
            send(answer);
        }
    }

    /** An application that can't look at its lock does not write. */
    static boolean stillHeld(Hold hold) {
        try {
            return hold.held();
        } catch (Exception e) {
            return false;
        }
    }

    static void send(Map<String, Object> message) throws Exception {
        System.out.println(json.writeValueAsString(message));
    }
}
