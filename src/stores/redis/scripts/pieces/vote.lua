-- Only in a quorum: unless the server is a master with the replication id ARGV[#ARGV-2], it refuses the request.
if #ARGV % 2 == 1 then
    local replication = call('INFO', 'replication')
    if
        not string.find(replication, 'role:master', 1, true)
        or not string.find(replication, 'master_replid:' .. ARGV[#ARGV - 2], 1, true)
    then
        return {number, {6, now}}
    end
end
