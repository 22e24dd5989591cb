-- Only in a quorum: unless the server is a master with the replication id ARGV[6], it refuses the request.
if ARGV[7] then
    local replication = call('INFO', 'replication')
    if
        not string.find(replication, 'role:master', 1, true)
        or not string.find(replication, 'master_replid:' .. ARGV[6], 1, true)
    then
        return {number, {6, now}}
    end
end
