import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;

/** The way of one thread to what it takes and gives back; {@code writes} matters to a read-write lock only. */
interface Way {
    void enter(boolean writes) throws InterruptedException;

    void leave(boolean writes);

    /** The way to a lock of a kind that {@link Driver} knows, to {@code mixed}, {@code semaphore} or {@code permits}. */
    static Way to(RedissonClient client, String kind, String name) throws ReflectiveOperationException {
        switch (kind) {
            case "semaphore":
                return to(client.getSemaphore(name));
            case "permits":
                return to(client.getPermitExpirableSemaphore(name));
            case "mixed":
                RReadWriteLock lock = client.getReadWriteLock(name);
                return to(lock.readLock(), lock.writeLock());
            default:
                RLock alone = Driver.lock(client, kind, name);
                return to(alone, alone);
        }
    }

    private static Way to(RLock read, RLock write) {
        return new Way() {
            @Override
            public void enter(boolean writes) {
                (writes ? write : read).lock();
            }

            @Override
            public void leave(boolean writes) {
                (writes ? write : read).unlock();
            }
        };
    }

    private static Way to(RSemaphore semaphore) {
        return new Way() {
            @Override
            public void enter(boolean writes) throws InterruptedException {
                semaphore.acquire();
            }

            @Override
            public void leave(boolean writes) {
                semaphore.release();
            }
        };
    }

    private static Way to(RPermitExpirableSemaphore semaphore) {
        return new Way() {
            private String permit;

            @Override
            public void enter(boolean writes) throws InterruptedException {
                permit = semaphore.acquire();
            }

            @Override
            public void leave(boolean writes) {
                semaphore.release(permit);
            }
        };
    }
}
