-- ARGV[6] is the replication id of the server that may vote. Any other server refuses the request.
if ARGV[7] then
    local replication = call('INFO', 'replication')
    if
        not string.find(replication, 'role:master', 1, true)
        or not string.find(replication, 'master_replid:' .. ARGV[6], 1, true)
    then
        return {number, {6, now}}
    end
end
