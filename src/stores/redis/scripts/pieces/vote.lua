-- Only a master with the replication id ARGV[6] may grant the request as a vote. Other servers refuse the request.
if ARGV[7] then
    local replication = call('INFO', 'replication')
    if
        not string.find(replication, 'role:master', 1, true)
        or not string.find(replication, 'master_replid:' .. ARGV[6], 1, true)
    then
        return {number, {6, now}}
    end
end
